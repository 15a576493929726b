"""Everything the author of a provider needs, and nothing more. Start at `provider.py`."""

from eso_sdk.provider import (
    Call,
    Check,
    Generator,
    Provider,
    Pushed,
    ServiceAccount,
    Store,
    Value,
    audiences,
    finds,
    generator_kind,
    pushes,
    reads,
    store_kind,
)

__all__ = [
    "Call",
    "Check",
    "Generator",
    "Provider",
    "Pushed",
    "ServiceAccount",
    "Store",
    "Value",
    "audiences",
    "finds",
    "generator_kind",
    "pushes",
    "reads",
    "store_kind",
]
