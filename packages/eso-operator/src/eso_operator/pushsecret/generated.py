"""State of generated values that are pushed: kept before the first push, given up when nothing was pushed.

    keep      older states but the latest get a deadline; the new one is written
    give_up   the value reached no store: its state is due at once

States that passed their deadline, or lost their owner, are cleaned up by their own controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.sync.generate import Made
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

    async def keep(self, push: PushSecret, made: Sequence[Made]) -> list[ObjectKey]:
        """The states of what was made now; a state that is lost cannot be cleaned up. Without `made`: only retire.

        The latest state stays as it is, because its value is still in the backend until the push is through.
        """
        older = sorted(self._unflagged(push), key=lambda state: state.metadata.creation_timestamp or "")
        for state in older[:-1]:
            await self._flag(state.metadata.key, self._clock.now() + self._grace)
        with_state = [each for each in made if each.state is not None]
        return [await self._written(push, each) for each in with_state]

    async def give_up(self, kept: Sequence[ObjectKey]) -> None:
        for key in kept:
            await self._flag(key, self._clock.now())

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

    async def _flag(self, key: ObjectKey, deadline: datetime) -> None:
        patch = {"spec": {"garbageCollectionDeadline": rfc3339(deadline)}}
        try:
            await self._client.merge_patch(_RAW, key, patch)
        except NotFound:
            return


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
