"""The test kit for providers: a client, a provider in memory, a real server, the conformance suite.

The names of the suite need the distribution `eso-conformance`, so they are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from eso_sdk.testing.memory import InMemory, call_context
from eso_sdk.testing.server import Client, ProviderServer

if TYPE_CHECKING:
    from eso_sdk.testing.conformance import Fixture, Target, conformance_server, conformance_tests, from_plain

_SUITE: Final = frozenset({"Fixture", "Target", "conformance_server", "conformance_tests", "from_plain"})

__all__ = [
    "Client",
    "Fixture",
    "InMemory",
    "ProviderServer",
    "Target",
    "call_context",
    "conformance_server",
    "conformance_tests",
    "from_plain",
]


def __getattr__(name: str) -> Any:
    """Load a name of the conformance suite."""
    if name not in _SUITE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("eso_sdk.testing.conformance"), name)
