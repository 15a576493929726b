"""Stage 10: is the store ready for this caller?

| store | Ready=True | Ready=False | Unknown or no condition |
|---|---|---|---|
| v1, flood gate on, a reader | passes | stops | stops |
| v2, gatingPolicy Enabled | passes | stops | passes |
| v2, gatingPolicy Disabled | passes | passes | passes |
"""

from __future__ import annotations

from typing import assert_never

from eso_operator.stores.need import Gate, Need
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.store import Gating, Store
from eso_operator.stores.target import Reason, ResolutionError
from eso_wire.errors import RetryClass


def check_ready(store: Store, need: Need, settings: ResolverSettings) -> None:
    """Stop whoever would only add to the load of a store that is not ready."""
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
        raise ResolutionError(
            Reason.NOT_READY, f"{store} is not ready: {_why(store)}", subject=store.ref, retry=RetryClass.BACKOFF
        )


def _why(store: Store) -> str:
    if store.ready is None:
        return "it has not been validated yet"
    said = ": ".join(part for part in (store.ready.reason, store.ready.message) if part)
    return said or f"its Ready condition is {store.ready.status}"
