"""Stage 10: is the store ready for this caller?

| store | Ready=True | Ready=False | Unknown or no condition |
|---|---|---|---|
| v1, flood gate on, a reader | passes | stops | stops |
| v2, gatingPolicy Enabled | passes | stops | passes |
| v2, gatingPolicy Disabled | passes | passes | passes |

A store that is not validated yet, or whose provider is starting, stops a caller without a failure: the caller waits.
The connection to the provider comes with the error: the caller can find out whether it is starting or unreachable.
"""

from __future__ import annotations

from typing import Final, assert_never

from eso_operator.stores.need import Gate, Need
from eso_operator.stores.referent import Gating, Referent
from eso_operator.stores.resolved import Connection, Reason, ResolutionError
from eso_operator.stores.settings import ResolverSettings
from eso_wire.errors import RetryClass

_VALIDATION_SECONDS: Final = 30.0
"""A caller looks at a store that is not validated yet again after this time, if no change of it comes first."""


def check_ready(store: Referent, need: Need, settings: ResolverSettings, connection: Connection) -> None:
    """Stop a caller whose call would only add load while the store is not ready."""
    status = store.ready.status if store.ready is not None else ""
    match store.behaviour.gating:
        case Gating.FLOOD_GATE:
            stopped = settings.flood_gate and need.gate is Gate.FULL and status != "True"
        case Gating.POLICY:
            stopped = need.gate is not Gate.OFF and status == "False"
        case Gating.NONE:
            stopped = False
        case other:
            assert_never(other)
    if stopped:
        waits = status in ("", "Unknown")
        raise ResolutionError(
            Reason.NOT_READY,
            f"{store} is not ready: {_why(store)}",
            subject=store.ref,
            retry=RetryClass.BACKOFF,
            connection=connection if waits else None,
            store_connection=None if waits else connection,
            waits=_VALIDATION_SECONDS if waits else 0.0,
        )


def _why(store: Referent) -> str:
    if store.ready is None:
        return "it has not been validated yet"
    said = ": ".join(part for part in (store.ready.reason, store.ready.message) if part)
    return said or f"its Ready condition is {store.ready.status}"
