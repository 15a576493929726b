"""Account of what generators made and must clean up: GeneratorStates.

    commit      the new state is kept before the target is written; all older ones of the entry get a deadline
    roll_back   what was made is cleaned up at once; if that fails, kept with a deadline of now

States that passed their deadline, or lost their owner, are cleaned up by their own controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec
import structlog

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_operator.stores.target import BoundTarget
from eso_operator.sync.generate import Made
from eso_operator.targets.hashes import digest
from eso_wire.errors import ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, ObjectRef
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock, rfc3339
from kuberun.errors import NotFound
from kuberun.meta import JsonObject, raw
from kuberun.ownership import owner_reference

OWNER_KEY_LABEL: Final = "generators.external-secrets.io/owner-key"
OWNER_INDEX: Final = "owner"
_RAW: Final = raw(GENERATOR_STATE.resource())

_log = structlog.get_logger(__name__)


class Cleans(Protocol):
    """The part of the gateway that is needed here."""

    async def cleanup(self, bound: BoundTarget, request: CleanupRequest) -> CleanupOutcome: ...


def owner_key(kind: str, namespace: str, name: str, entry: str) -> str:
    """By which states of one entry of one object are found; the existing operator's digest."""
    return digest(f"{kind}-{namespace}-{name}-{entry}")


def owner_of(state: GeneratorState) -> list[tuple[str, str]]:
    """The index through which they are found."""
    key = state.metadata.labels.get(OWNER_KEY_LABEL)
    return [(state.metadata.namespace, key)] if key else []


class StateLedger:
    """Implements `sync.generate.GeneratorLedger`."""

    def __init__(
        self, client: Client, states: Store[GeneratorState], gateway: Cleans, *, clock: Clock, grace: float
    ) -> None:
        self._client = client
        self._states = states
        self._gateway = gateway
        self._clock = clock
        self._grace = timedelta(seconds=grace)

    async def commit(self, owner: ExternalSecret, made: Sequence[Made]) -> None:
        """Older states as they are known now, then the new ones: a state that is lost cannot be cleaned up.

        What a retired state stands for lives on for the grace period, so that users of the old value can catch up.
        """
        meta = owner.metadata
        keys = [
            owner_key("ExternalSecret", meta.namespace, meta.name, str(index))
            for index in range(len(owner.spec.data_from))
        ]
        old = [state for key in keys for state in self._states.find(OWNER_INDEX, (meta.namespace, key))]
        for each in made:
            if each.state is not None:
                await self._client.create(_RAW, self._document(owner, each, keys[each.index]))
        await self._retire(old)

    async def roll_back(self, made: Sequence[Made]) -> None:
        for each in made:
            if each.state is None:
                continue
            try:
                await self._gateway.cleanup(each.bound, CleanupRequest(each.state))
            except ProviderError as error:
                _log.warning("generated state not cleaned up", generator=each.bound.target.store.name, why=error.reason)
                await self._client.create(_RAW, self._due_now(each))

    async def _retire(self, states: Sequence[GeneratorState]) -> None:
        deadline = rfc3339(self._clock.now() + self._grace)
        for state in states:
            if state.spec.garbage_collection_deadline is None:
                try:
                    await self._client.merge_patch(
                        _RAW, state.metadata.key, {"spec": {"garbageCollectionDeadline": deadline}}
                    )
                except NotFound:
                    continue

    def _document(self, owner: ExternalSecret, made: Made, key: str) -> JsonObject:
        meta = owner.metadata
        reference = msgspec.to_builtins(owner_reference(EXTERNAL_SECRET.resource(), meta))
        return {
            "metadata": {
                "generateName": f"gen-externalsecret-{meta.name}-"[:200],
                "namespace": meta.namespace,
                "labels": {OWNER_KEY_LABEL: key},
                "ownerReferences": [reference],
            },
            "spec": {"resource": resource_of(made), "state": _json(made)},
        }

    def _due_now(self, made: Made) -> JsonObject:
        caller: ObjectRef = made.bound.target.caller
        now: datetime = self._clock.now()
        return {
            "metadata": {"generateName": f"gen-externalsecret-{caller.name}-"[:200], "namespace": caller.namespace},
            "spec": {
                "resource": resource_of(made),
                "state": _json(made),
                "garbageCollectionDeadline": rfc3339(now),
            },
        }


def resource_of(made: Made) -> JsonObject:
    """The generator as it was: what is needed to clean up after it has changed or gone."""
    config, target = made.bound.config, made.bound.target
    spec: Any = msgspec.json.decode(config.spec_json.reveal()) if config.spec_json is not None else {}
    return {
        "apiVersion": target.store.api_version,
        "kind": target.store.kind,
        "metadata": {"name": target.store.name, "namespace": target.store.namespace},
        "spec": spec,
    }


def _json(made: Made) -> Any:
    return msgspec.json.decode(made.state.reveal()) if made.state is not None else None
