"""What an opened store and an opened generator have in common: a typed configuration, its credentials, the call.

One instance is one session: a configuration at one credential identity, opened once and used by many calls at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec

from eso_api.references import (
    CaProvider,
    RequiredSecretKeySelector,
    SecretKeySelector,
    SecretSelector,
    ServiceAccountSelector,
)
from eso_api.values import SecretBytes
from eso_sdk.accounts import ServiceAccount
from eso_sdk.addresses import ORDINARY, AddressPolicy
from eso_sdk.credentials import Credentials
from eso_wire.values import Credential, ObjectRef, Operation, SecretMap, Token, Validation, ValidationState
from kuberun.clock import Clock

if TYPE_CHECKING:
    from eso_sdk.http import HttpClient

C = TypeVar("C", bound=msgspec.Struct)


class ApiCalls(Protocol):
    """Counts what a provider asks its backend."""

    def count(self, call: str, status: str, seconds: float, *, api: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """The call that is being answered. `deadline` is on the clock's monotonic scale, a little before the caller's.

    `caller` is the object that the call is made for, on the operator's word: for logs, audit and quotas. A read may
    serve many objects, of other namespaces too, and then names the first of them. Do not let a result depend on it,
    unless the kind declares `caller_namespace`: then `caller.namespace` is that of everybody whom the answer reaches.
    """

    request_id: str
    caller: ObjectRef
    store: ObjectRef
    deadline: float
    max_retries: int = 0
    retry_interval: float = 0.0
    idempotency_key: str = ""
    """Equal for repetitions of one push, delete, generation or cleanup."""
    account: ServiceAccount | None = None
    """Whose verified token came with the call; None when tokens are not verified, or not required. In `open`, the
    account of the call that opens the session: calls of other accounts get sessions of their own."""
    traceparent: str = ""
    """W3C trace context to pass on to a backend that traces; empty when the operator sent none."""


@dataclass(frozen=True, slots=True)
class Opening(Generic[C]):
    """Everything a session is made of."""

    config: C = field(repr=False)
    holder: ObjectRef
    """The object that holds the configuration."""
    credentials: Credentials = field(repr=False)
    clock: Clock
    api_calls: ApiCalls
    addresses: AddressPolicy = ORDINARY
    """Which addresses of a spec may be dialled."""


CURRENT_CALL: ContextVar[Call] = ContextVar("current_call")


class Backend(Generic[C]):
    """Base of `Store` and `Generator`. Authors override; the server constructs."""

    OPERATIONS: ClassVar[frozenset[Operation]] = frozenset()
    """What the kind does; set by its decorator."""
    API_NAME: ClassVar[str] = ""
    """Value of the label `provider` in the metrics of calls to the backend; empty for that of the whole provider."""

    def __init__(self, opening: Opening[C]) -> None:
        self.config: C = opening.config
        self.holder = opening.holder
        self.clock = opening.clock
        self._credentials = opening.credentials
        self._api_calls = opening.api_calls
        self.addresses = opening.addresses

    # --- what an author may override ---------------------------------------------------------------------------------

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        """Look at the configuration alone: warnings, or raise `invalid_config`. No outside calls: admission asks it."""
        del config
        return ()

    async def open(self) -> None:
        """Log in, connect. Called once, before anything else."""

    async def close(self) -> None:
        """Let go of what `open` took. Called once, when no call uses the session any more.

        Also called when `open` failed or ran out of time: then only a part of what it sets may be there.
        """

    async def validate(self) -> Validation:
        """Ask the backend whether this configuration works."""
        return Validation(ValidationState.READY)

    def renew(self, sent: Iterable[Credential]) -> None:
        """Take the tokens of a later call; called by the server."""
        self._credentials.renew(sent)

    # --- what an author may use --------------------------------------------------------------------------------------

    @property
    def call(self) -> Call:
        """The call that is being answered."""
        return CURRENT_CALL.get()

    def secret(self, reference: SecretKeySelector | RequiredSecretKeySelector) -> SecretBytes:
        """The value a reference of the configuration names."""
        return self._credentials.secret(reference)

    def whole_secret(self, reference: SecretSelector | SecretKeySelector) -> SecretMap:
        """All keys of the Secret a reference of the configuration names."""
        return self._credentials.whole(reference)

    def token(self, reference: ServiceAccountSelector) -> Token:
        """The newest token of the service account a reference names. Ask each time: tokens live for minutes."""
        return self._credentials.token(reference)

    def ca(self, reference: CaProvider) -> bytes:
        """The CA bundle a reference of the configuration names."""
        return self._credentials.secret(reference).reveal()

    def http_client(self, subject: str, **settings: Any) -> HttpClient:
        """Make a client for a backend that speaks HTTP; the author closes it in `close`. Settings: `HttpSettings`."""
        # Imported here: providers whose backend speaks something else do not pay for it.
        from eso_sdk.http import HttpClient, HttpSettings

        return HttpClient(HttpSettings(subject, **settings), policy=self.addresses, clock=self.clock)

    @contextmanager
    def observe(self, call: str) -> Iterator[None]:
        """Count and time one call to the backend: `with self.observe("GetSecretValue"): ...`."""
        begun = self.clock.monotonic()
        status = "error"
        try:
            yield
            status = "success"
        finally:
            self._api_calls.count(call, status, self.clock.monotonic() - begun, api=self.API_NAME)


def config_type(backend: type[Backend[C]]) -> type[C]:
    """The configuration a class is written for: the argument of its `Store[...]` or `Generator[...]`."""
    for base in backend.__mro__:
        for origin in getattr(base, "__orig_bases__", ()):
            match get_args(origin):
                case (type() as argument,) if issubclass(get_origin(origin) or object, Backend):
                    return argument
                case _:
                    continue
    raise TypeError(f"{backend.__name__} does not say its configuration; write Store[Config] or Generator[Config]")
