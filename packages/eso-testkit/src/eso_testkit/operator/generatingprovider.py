"""A provider of generators that remember: every value is on its books until it is cleaned up.

Serves `Maker` and, under its name, the v1alpha1 kind `Grafana`; both take a token from a Secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_testkit.operator.operators import BACKEND_ID, MAKER_ID, READS, TOKEN_PATH
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CleanupOutcome,
    CredentialKind,
    CredentialPath,
    Generated,
    KindInfo,
    KindRole,
    Operation,
    Validation,
    ValidationState,
)
from kubebase.clock import SystemClock

MAKES = frozenset({Operation.GENERATE, Operation.CLEANUP})
GRAFANA_TOKEN = CredentialPath("/auth/token", CredentialKind.SECRET_KEY)


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """One call of Cleanup: the state, the configuration and the credentials that came with it."""

    state: Any
    spec: Any
    credentials: tuple[bytes, ...]


@dataclass(slots=True)
class GeneratingProvider(ScriptedProvider):
    """`books` are the values that exist in its backend, by number."""

    books: dict[int, bytes] = field(default_factory=dict)
    specs: list[Any] = field(default_factory=list)
    """The configuration of every Generate."""
    cleaned: list[CleanedUp] = field(default_factory=list)
    cleanup_error: ProviderError | None = None
    refusal: ProviderError | None = None
    """The problem that it reports about every configuration."""
    made: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """The values generated under an idempotency key."""
    loses_responses: bool = False
    """True if the response is lost after values were generated."""
    finds_by_key: bool = True
    cleans_up: bool = True
    """Otherwise the generator has no clean-up operation."""
    generate_errors: list[ProviderError] = field(default_factory=list)
    """Each fails one Generate that makes nothing."""

    def __post_init__(self) -> None:
        self.kinds = (
            KindInfo(BACKEND_ID, KindRole.STORE, READS, v1_provider_key="fake", credentials=(TOKEN_PATH,)),
            KindInfo(
                MAKER_ID,
                KindRole.GENERATOR,
                MAKES if self.cleans_up else MAKES - {Operation.CLEANUP},
                v1_provider_key="Grafana",
                credentials=(TOKEN_PATH, GRAFANA_TOKEN),
            ),
        )

    def _respond(self, method: str, request: bytes) -> Message:
        match paths.short_name(method):
            case "Generate":
                context, wanted = codec.from_generate_request(pb.GenerateRequest.FromString(request))
                self.specs.append(_document(context.config.spec_json))
                if self.generate_errors:
                    raise self.generate_errors.pop()
                made = self._made(wanted.idempotency_key)
                if self.loses_responses:
                    raise ProviderError(ErrorReason.BACKEND_TIMEOUT, "no answer in time")
                return codec.to_generate_response(made)
            case "Cleanup":
                context, asked = codec.from_cleanup_request(pb.CleanupRequest.FromString(request))
                state = _document(asked.state) if asked.state else self._found(asked.idempotency_key)
                spec = _document(context.config.spec_json)
                tokens = tuple(
                    each.value.reveal() for each in context.config.credentials if isinstance(each.value, SecretBytes)
                )
                self.cleaned.append(CleanedUp(state, spec, tokens))
                if self.cleanup_error is not None:
                    raise self.cleanup_error
                gone = self.books.pop(state["number"], None)
                outcome = CleanupOutcome.ALREADY_GONE if gone is None else CleanupOutcome.CLEANED
                return codec.to_cleanup_response(outcome)
            case "ValidateGenerator":
                state_of = ValidationState.READY if self.refusal is None else ValidationState.INVALID
                return codec.to_validate_response(Validation(state_of, error=self.refusal))
        # Zero-argument super does not find its class here: a dataclass with slots is made twice.
        return ScriptedProvider._respond(self, method, request)  # noqa: SLF001 - it is our own

    def _made(self, key: str) -> Generated:
        if key not in self.numbers:
            self.made += 1
            self.numbers[key] = self.made
            self.books[self.made] = f"value-{self.made}".encode()
        number = self.numbers[key]
        value = SecretBytes(f"value-{number}".encode())
        return Generated({"password": value}, SecretBytes(msgspec.json.encode({"number": number})))

    def _found(self, key: str) -> Any:
        if not self.finds_by_key:
            raise ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "nothing is found by its key")
        return {"number": self.numbers.get(key, 0)}


def generating(**fields: Any) -> GeneratingProvider:
    return GeneratingProvider(SystemClock(), **fields)


def _document(text: SecretBytes | None) -> Any:
    return None if text is None else msgspec.json.decode(text.reveal())
