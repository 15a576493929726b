"""The common base of an opened store and an opened generator: a typed configuration, its credentials, the call.

One instance is one session: a configuration with one credential identity, opened once and used by many concurrent
calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
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
from eso_sdk.lookups import CallLookups
from eso_sdk.processidentity import STRICT, ProcessIdentity, ProcessIdentityPolicy
from eso_wire.values import Credential, ObjectRef, Operation, SecretMap, Token, Validation, ValidationState
from kubebase.clock import Clock

if TYPE_CHECKING:
    from eso_sdk.http import HttpClient
    from eso_sdk.metrics import ApiCallSeries

C = TypeVar("C", bound=msgspec.Struct)


class Closable(Protocol):
    """What a session closes: a client, a login, a subscription."""

    async def close(self) -> None: ...


R = TypeVar("R", bound=Closable)


@dataclass(frozen=True, slots=True)
class Call:
    """The call being answered. `deadline` is in the clock's monotonic time, slightly before the caller's deadline.

    `caller` is the object for which the call is made, as stated by the operator: for logs, audit and quotas. A read may
    serve many objects, also of other namespaces, and then names only the first. Results must not depend on it, unless
    the kind declares `caller_namespace`: then `caller.namespace` is that of every receiver of the response.
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
    """The account of the call's verified token; None if tokens are not verified or not required.

    In `open`, this is the account of the call that opens the session: calls of other accounts get their own sessions.
    """
    lookups: CallLookups | None = field(default=None, repr=False, compare=False)
    """The budget for lookups of properties (`property_in`); None for no limit, outside of a server."""
    traceparent: str = ""
    """W3C trace context to pass on to a backend that traces; empty if the operator sent none."""


@dataclass(frozen=True, slots=True)
class Opening(Generic[C]):
    """The parts of a session."""

    config: C = field(repr=False)
    holder: ObjectRef
    """The object that holds the configuration."""
    credentials: Credentials = field(repr=False)
    clock: Clock
    api_calls: ApiCallSeries
    addresses: AddressPolicy = ORDINARY
    """The addresses of a spec to which connections are allowed."""
    process_identity: ProcessIdentityPolicy = STRICT
    """Who may use the identity of the provider's own process, and who may receive a proof of it."""


CURRENT_CALL: ContextVar[Call] = ContextVar("current_call")
"""The call in progress, for `Backend.call`: one session serves many calls at a time, and authors' methods take none."""


class Backend(Generic[C]):
    """Base of `Store` and `Generator`. Authors override methods; the server creates instances."""

    OPERATIONS: ClassVar[frozenset[Operation]] = frozenset()
    """The operations of the kind; set by its decorator."""
    API_NAME: ClassVar[str] = ""
    """Value of the label `provider` in the metrics of backend calls; if empty, the provider's name."""

    def __init__(self, opening: Opening[C]) -> None:
        self.config: C = opening.config
        self.holder = opening.holder
        self.clock = opening.clock
        self._credentials = opening.credentials
        self._api_calls = opening.api_calls
        self.resources = AsyncExitStack()
        """What `close` releases, the last one first."""
        self.addresses = opening.addresses
        self.process_identity = ProcessIdentity(opening.process_identity, opening.holder)

    # --- what an author may override ---------------------------------------------------------------------------------

    @classmethod
    def check_config(cls, config: C) -> tuple[str, ...]:
        """Check the configuration alone, without outside calls: return warnings or raise `invalid_config`."""
        del config
        return ()

    async def open(self) -> None:
        """Log in, connect. Called once, before any other method."""

    async def close(self) -> None:
        """Release the resources of `open` (`close_later`). Called once, when no call uses the session any more.

        Also called if `open` failed or timed out: then only some of its resources may exist.
        """
        await self.resources.aclose()

    async def validate(self) -> Validation:
        """Ask the backend whether this configuration works."""
        return Validation(ValidationState.READY)

    def renew(self, sent: Iterable[Credential]) -> None:
        """Take over the tokens of a later call. Called by the server."""
        self._credentials.renew(sent)

    # --- what an author may use --------------------------------------------------------------------------------------

    @property
    def call(self) -> Call:
        """Return the call in progress."""
        return CURRENT_CALL.get()

    def secret(self, reference: SecretKeySelector | RequiredSecretKeySelector) -> SecretBytes:
        """Return the value of a reference in the configuration."""
        return self._credentials.secret(reference)

    def whole_secret(self, reference: SecretSelector | SecretKeySelector) -> SecretMap:
        """Return all keys of the Secret that a reference in the configuration names."""
        return self._credentials.whole(reference)

    def token(self, reference: ServiceAccountSelector) -> Token:
        """Return the newest token of the service account. Call this every time: tokens live for minutes."""
        return self._credentials.token(reference)

    def ca(self, reference: CaProvider) -> bytes:
        """Return the CA bundle of a reference in the configuration."""
        return self._credentials.secret(reference).reveal()

    def http_client(self, subject: str, **settings: Any) -> HttpClient:
        """Make a client for a backend that speaks HTTP; the author closes it in `close`. Settings: `HttpSettings`."""
        # Imported here, so that providers of other backends do not load it.
        from eso_sdk.http import HttpClient, HttpSettings

        return HttpClient(HttpSettings(subject, **settings), policy=self.addresses, clock=self.clock)

    def close_later(self, resource: R) -> R:
        """Return the resource; it is closed when the store is closed, the latest one first."""
        self.resources.push_async_callback(resource.close)
        return resource

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
    """Return the configuration type of a class: the argument of its `Store[...]` or `Generator[...]`."""
    for base in backend.__mro__:
        for origin in getattr(base, "__orig_bases__", ()):
            match get_args(origin):
                case (type() as argument,) if issubclass(get_origin(origin) or object, Backend):
                    return argument
                case _:
                    continue
    raise TypeError(f"{backend.__name__} does not say its configuration; write Store[Config] or Generator[Config]")
