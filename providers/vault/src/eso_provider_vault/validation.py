"""The validation of a store: its token is accepted, and its engine exists and is kv.

A store whose `version` is not that of the engine is ready, with a warning: version v1 on a version 2 engine reads
"data/KEY", and existing manifests do that.
"""

from __future__ import annotations

from typing import Final

from eso_provider_vault.api import Api
from eso_provider_vault.errors import accepts_token, dead_token, refusal
from eso_provider_vault.mounts import Mounts
from eso_provider_vault.watching import Watcher
from eso_wire.errors import ProviderError
from eso_wire.values import ConditionReport, Operation, Validation, ValidationState

_VERSION_2_ONLY: Final = frozenset({Operation.METADATA_FETCH, Operation.FIND_BY_TAGS})


async def examined(api: Api, mounts: Mounts, watcher: Watcher, operations: frozenset[Operation]) -> Validation:
    """Validate the store at the server; return its operations, or raise its error."""
    warning = ""
    if api.settings.mount:
        warning = await _check_mount(api, mounts)
    else:
        await _check_token(api)
    offered = operations - _VERSION_2_ONLY if api.settings.version == "v1" else operations
    if warning or not await _tells_of_changes(watcher):
        offered -= {Operation.SUBSCRIBE}
    if not warning:
        return Validation(ValidationState.READY, operations=offered)
    condition = ConditionReport("VersionMismatch", "True", "EngineVersionDiffers", warning)
    return Validation(ValidationState.READY, operations=offered, warnings=(warning,), conditions=(condition,))


async def _check_mount(api: Api, mounts: Mounts) -> str:
    """Check token and mount together: every token with any right below the mount may read the mount's description.

    Returns what differs between the versions of store and engine.
    """
    reply = await mounts.ask(api.settings.mount)
    if reply.status == 403 and not await api.token_is_good():
        raise dead_token(api.place(api.settings.mount))
    engine = mounts.described(reply, api.settings.mount)
    mounts.check(engine)
    return mounts.version_difference(engine)


async def _check_token(api: Api) -> None:
    reply = await api.look_at_token()
    if reply.status != 403 and not reply.ok:
        raise refusal(reply, api.place("auth/token/lookup-self"))
    if accepts_token(reply) is not True:
        raise dead_token(api.place("auth/token/lookup-self"))


async def _tells_of_changes(watcher: Watcher) -> bool:
    """Find out whether the server reports changes.

    A failure does not affect readiness; the next validation asks again.
    """
    try:
        return await watcher.way() != "none"
    except ProviderError:
        return False
