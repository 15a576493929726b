"""Removes the targets of an ExternalSecret: on its deletion, and when its spec names another target.

The garbage collector deletes owned targets. A finalizer is set only if the policy promises more than that
(deletionPolicy Delete). A finalizer of the Go operator is removed when the object may be deleted. If a target could not
be found again after a change of the spec, the status records it before it is written.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, ExternalSecretStatus, MadeManifest
from eso_operator.controllers.externalsecret.snapshot import Rules
from eso_operator.report.messages import Event
from eso_operator.targets.marks import FINALIZER
from eso_operator.targets.record import Removal, with_record
from eso_operator.targets.target import Target
from kuberun.client import Client
from kuberun.controller import Backoff, Done, Result
from kuberun.errors import Conflict, NotFound
from kuberun.events import EventType
from kuberun.ownership import add_finalizer, remove_finalizer

_KIND: Final = EXTERNAL_SECRET.kind()


def with_target_on_record(es: ExternalSecret) -> ExternalSecretStatus:
    """Return the status with a record of the target, so that it can be found once the spec names another one."""
    return msgspec.structs.replace(es.status, manifests=list(with_record(es)))


class RemovesFormer(Protocol):
    """Removes former targets: `targets.leftovers.Leftovers`."""

    def exist(self, es: ExternalSecret) -> bool:
        """Return whether there may be former targets, without a request."""
        ...

    async def remove(self, es: ExternalSecret) -> Removal:
        """Delete the former targets. Raises ApiError."""
        ...


class Cleanup:
    """Removes targets of ExternalSecrets. The process has one."""

    def __init__(self, client: Client, rules: Rules, leftovers: RemovesFormer) -> None:
        self._client = client
        self._rules = rules
        self._leftovers = leftovers

    async def prepare(self, es: ExternalSecret) -> Result | None:
        """Set the finalizer if deletion must wait for us; return an outcome if this reconcile must end here.

        Raises ApiError if the API server rejects the write.
        """
        if es.spec.target.deletion_policy != "Delete" or FINALIZER in es.metadata.finalizers:
            return None
        try:
            await add_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Backoff("the ExternalSecret changed meanwhile")
        return Done()  # our own write comes back as an event

    async def finish(self, es: ExternalSecret, target: Target) -> Result:
        """Clean up after an ExternalSecret that is being deleted. Raises ApiError if the API server prevents it."""
        try:
            if es.spec.target.deletion_policy == "Delete" and self._may_write(es):
                await target.delete(es)
            await remove_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Backoff("the ExternalSecret or its target changed meanwhile")
        return Done()

    def _may_write(self, es: ExternalSecret) -> bool:
        """Return whether we may write the target: targets other than Secrets need the administrator's permission."""
        return es.spec.target.manifest is None or self._rules.generic_targets

    def has_orphans(self, es: ExternalSecret) -> bool:
        """Return whether there may be targets under an earlier name, or of an earlier kind."""
        return self._leftovers.exist(es)

    async def delete_orphans(self, es: ExternalSecret) -> tuple[tuple[Event, ...], tuple[MadeManifest, ...]]:
        """Delete earlier targets; return the events about them and the targets that stay recorded."""
        removal = await self._leftovers.remove(es)
        return tuple(Event(EventType.NORMAL, "Deleted", text) for text in removal.told), removal.on_record
