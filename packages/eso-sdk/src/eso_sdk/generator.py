"""A generator, as its author writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend, C
from eso_wire.values import Generated, GenerateRequest, Operation


class Generator(Backend[C]):
    """Makes values. Override `cleanup` when something stays behind at the backend."""

    async def generate(self, request: GenerateRequest) -> Generated | Mapping[str, bytes | SecretBytes]:
        """New values; with a state, if they have to be cleaned up."""
        raise NotImplementedError

    async def cleanup(self, state: SecretBytes) -> bool | None:
        """Take back what `generate` made; False says it was gone already. Asked again after a failure."""
        raise NotImplementedError


def generator_operations(generator: type[Generator[Any]]) -> frozenset[Operation]:
    if generator.generate is Generator.generate:
        raise TypeError(f"{generator.__name__} does not override generate")
    cleans = generator.cleanup is not Generator.cleanup
    return frozenset({Operation.GENERATE, Operation.CLEANUP} if cleans else {Operation.GENERATE})
