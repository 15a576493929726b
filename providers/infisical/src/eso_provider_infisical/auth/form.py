"""A configured login of any form: where it is sent, whom it proves, and its body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from yarl import URL

from eso_api.references import SecretKeySelector
from eso_api.stores.infisical import InfisicalProvider
from eso_api.values import SecretBytes
from eso_sdk.loginbodies import MakeBody
from eso_sdk.processidentity import ProcessIdentity
from kubebase.clock import Clock


class Opened(Protocol):
    """The part of an opened store that logins need."""

    config: InfisicalProvider
    clock: Clock
    process_identity: ProcessIdentity

    def secret(self, reference: SecretKeySelector) -> SecretBytes: ...


def prove_own_identity(store: Opened, own: str, pointer: str) -> None:
    """Refuse a proof of the provider's own identity, unless its administrator allows it for this server."""
    instead = "use universalAuthCredentials or another form that names its own credentials"
    store.process_identity.use(own, field=pointer, instead=instead)
    store.process_identity.prove(own, URL(store.config.host_api), field="/hostAPI")


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The field of `auth`."""
    method: str
    """The segment of the login path."""
    call: str
    """The name of the call in metrics."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Infisical rejects the login."""

    @property
    def path(self) -> str:
        return f"v1/auth/{self.method}/login"
