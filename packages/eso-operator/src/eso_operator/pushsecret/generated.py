"""State of generated values that are pushed, in the words of `sync.generate.GeneratorLedger`.

    keep      the new state is written before the first push
    retire    every store has the new value: the states before it get a deadline
    discard   no store got the new value: its state is due at once

A push that reached some stores leaves both: the others still hold what the older state stands for. States that passed
their deadline, or lost their owner, are cleaned up by their own controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.sync.generate import Kept, Made
from eso_operator.sync.ledger import OWNER_INDEX, OWNER_KEY_LABEL, Cleans, owner_key, resource_of
from eso_wire.errors import ProviderError
from eso_wire.values import CleanupRequest
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock, rfc3339
from kuberun.errors import ApiError, NotFound
from kuberun.meta import JsonObject, ObjectKey, key_of, raw
from kuberun.ownership import owner_reference

STATE_KEY: Final = "__pushsecret"
MAX_KEPT: Final = 5
"""States of one object that may wait for a push to succeed."""

_log = structlog.get_logger(__name__)
_RAW: Final = raw(GENERATOR_STATE.resource())


class GeneratedStates:
    """One for the process."""

    def __init__(
        self, client: Client, states: Store[GeneratorState], *, gateway: Cleans, clock: Clock, grace: float
    ) -> None:
        self._client = client
        self._gateway = gateway
        self._states = states
        self._clock = clock
        self._grace = timedelta(seconds=grace)

    async def keep(self, push: PushSecret, made: Sequence[Made]) -> Kept:
        """Put the state on record. Of older ones only a few stay, however often a push is tried."""
        older = sorted(self._unflagged(push), key=lambda state: state.metadata.creation_timestamp or "")
        await self._flag([state.metadata.key for state in older[:-MAX_KEPT]], self._clock.now() + self._grace)
        new = [await self._written(push, each) for each in made if each.state is not None]
        return Kept(tuple(new), tuple(state.metadata.key for state in older[-MAX_KEPT:]))

    async def retire(self, kept: Kept) -> None:
        """What they stand for lives on for the grace period, so that users of the old value can catch up."""
        await self._flag(kept.older, self._clock.now() + self._grace)

    async def discard(self, kept: Kept) -> None:
        await self._flag(kept.new, self._clock.now())

    async def _written(self, push: PushSecret, made: Made) -> ObjectKey:
        try:
            return key_of(await self._client.create(_RAW, _document(push, made)))
        except ApiError:
            # Nobody would ever know of it: clean up now, or at least try to.
            if made.state is not None:
                with suppress(ProviderError):
                    await self._gateway.cleanup(made.bound, CleanupRequest(made.state))
            raise

    def _unflagged(self, push: PushSecret) -> list[GeneratorState]:
        meta = push.metadata
        found = self._states.find(OWNER_INDEX, (meta.namespace, _owner_key(push)))
        return [state for state in found if state.spec.garbage_collection_deadline is None]

    async def _flag(self, states: Sequence[ObjectKey], deadline: datetime) -> None:
        """One that fails is tried again after the next push."""
        for key in states:
            try:
                await self._client.merge_patch(_RAW, key, {"spec": {"garbageCollectionDeadline": rfc3339(deadline)}})
            except NotFound:
                continue
            except ApiError as problem:
                _log.warning("generated state not retired", state=str(key), why=problem.reason)


def _owner_key(push: PushSecret) -> str:
    return owner_key("PushSecret", push.metadata.namespace, push.metadata.name, STATE_KEY)


def _document(push: PushSecret, made: Made) -> JsonObject:
    meta = push.metadata
    state = msgspec.json.decode(made.state.reveal()) if made.state is not None else None
    return {
        "metadata": {
            "generateName": f"gen-pushsecret-{meta.name}-"[:200],
            "namespace": meta.namespace,
            "labels": {OWNER_KEY_LABEL: _owner_key(push)},
            "ownerReferences": [msgspec.to_builtins(owner_reference(PUSH_SECRET.resource(), meta))],
        },
        "spec": {"resource": resource_of(made), "state": state},
    }
