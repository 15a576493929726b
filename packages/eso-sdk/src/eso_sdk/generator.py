"""The base class of generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend, C
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, Operation


class Generator(Backend[C]):
    """Generates values. Override `cleanup` if generation leaves something at the backend."""

    async def generate(self, request: GenerateRequest) -> Generated | Mapping[str, bytes | SecretBytes]:
        """Return new values; with a state if they need cleanup."""
        raise NotImplementedError

    async def cleanup(self, state: SecretBytes) -> bool | None:
        """Remove what `generate` created; return False if it was already gone. Called again after a failure."""
        raise NotImplementedError

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        """Remove what `generate` created under this key, if anything: its response, with the state, was lost.

        Override it if the backend can find that, for example by a name that contains the key.
        """
        del idempotency_key
        message = "this generator cannot tell what a call made whose answer got lost"
        raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, message)


def generator_operations(generator: type[Generator[Any]]) -> frozenset[Operation]:
    if generator.generate is Generator.generate:
        raise TypeError(f"{generator.__name__} does not override generate")
    cleans = generator.cleanup is not Generator.cleanup
    return frozenset({Operation.GENERATE, Operation.CLEANUP} if cleans else {Operation.GENERATE})
