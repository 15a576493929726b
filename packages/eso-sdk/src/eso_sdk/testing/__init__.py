"""For tests of providers: a client, a provider in memory, a real server with throwaway certificates."""

from eso_sdk.testing.client import Client
from eso_sdk.testing.memory import InMemory
from eso_sdk.testing.requests import call_context
from eso_sdk.testing.server import ProviderServer

__all__ = ["Client", "InMemory", "ProviderServer", "call_context"]
