"""Removes our finalizers from stores of kinds that are turned off, so that their deletion waits for nothing.

Each kind is listed once, at the start. While the kinds are off, the operator adds no finalizer to them; when they are
on again, `holding.py` adds those that are needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import structlog

from eso_operator.controllers.secretstore.finalizer import finalizer_patch
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.report.messages import outcome_of
from kubebase.meta import Malformed, ObjectKey
from kuberun.client import Client
from kuberun.controller import Done, Result
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.requests import Selection
from kuberun.workqueue import ReconcileRequest

_PAGE = 500

_log = structlog.get_logger(__name__)


class Release:
    """Reconciles kinds: a key names one. `namespace` is empty for an operator of the whole cluster."""

    def __init__(self, kinds: Iterable[StoreKind], *, client: Client, namespace: str, controller_class: str) -> None:
        self._kinds = {ObjectKey("", str(kind.resource)): kind for kind in kinds}
        self._client = client
        self._namespace = namespace
        self._controller_class = controller_class

    @property
    def requests(self) -> tuple[ReconcileRequest, ...]:
        return tuple(ReconcileRequest(key, "the kind is turned off") for key in self._kinds)

    async def reconcile(self, key: ObjectKey) -> Result:
        kind, released = self._kinds[key], 0
        try:
            async for store in self._stores(kind):
                patch = finalizer_patch(store.metadata, holding=False)
                if patch is not None and store.spec.controller in ("", self._controller_class):
                    await self._client.merge_patch(kind.kind, store.metadata.key, patch)
                    released += 1
        except (NotFound, Forbidden):
            return Done()  # the kind is not installed, or not for this operator
        except ApiError as problem:
            return outcome_of(problem, "store", "finalizer not removed")
        _log.info("finalizers of a kind that is off are removed", kind=str(kind.resource), stores=released)
        return Done()

    async def _stores(self, kind: StoreKind) -> AsyncIterator[Any]:
        home = self._namespace if kind.resource.namespaced else ""
        source, token = self._client.source(kind.kind, Selection(home)), ""
        while True:
            page = await source.list_page(limit=_PAGE, continue_token=token, resource_version="")
            for store in page.items:
                if not isinstance(store, Malformed):
                    yield store
            token = page.continue_token
            if not token:
                return
