"""The certificates of one provider Service as a frozen state, and the steps that change it. Pure.

    observe -> State -> plan -> steps -> carry_out -> State -> write -> observe ...

`issuance.py` plans the steps and carries them out. A plan depends only on the stored state and the time, so it
survives a crash between any two writes. Leaves are renewed under their authority. The authority is replaced in three
phases:

    STEADY      one authority
      |  it expires soon
    PUBLISHING  1: both authorities are in every trust bundle, the old one signs
      |  both Secrets have held both authorities for the settle time
    RETIRING    2: the new one signs, leaves are issued again, the old one is still trusted
      |  both leaves have been of the new one for the settle time and the longest life of a connection
    STEADY      3: the old one is removed

Peers must load a changed Secret within the settle time. A peer that does never meets a valid certificate that it does
not trust. A lost issuer restarts at phase 2: all authorities in the bundles stay trusted, and leaves are replaced only
after the new authority has settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from eso_api.values import SecretBytes
from eso_operator.certificates.problems import Problem, ProblemName

BACKDATED: Final = timedelta(minutes=5)
MAX_PEM_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate (PEM) and its private key (PEM, PKCS 8)."""

    certificate: bytes
    key: SecretBytes


@dataclass(frozen=True, slots=True)
class Window:
    """The validity of a certificate."""

    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The names in the certificate of a server: its DNS names, its identity and its addresses."""

    dns: tuple[str, ...]
    identity: str
    addresses: tuple[str, ...] = ()


def window(now: datetime, validity: timedelta) -> Window:
    start = now.replace(microsecond=0)  # X.509 counts whole seconds
    return Window(start - BACKDATED, start + validity)


def service_dns(namespace: str, name: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the four DNS names of a Service, the shortest first."""
    return name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{cluster_domain}"


def join(certificates: Iterable[bytes]) -> bytes:
    """Return a bundle of these certificates."""
    return b"".join(certificates)


def timing_problem(
    valid: Window, now: datetime, expired: ProblemName = ProblemName.SERVER_CERT_EXPIRED
) -> Problem | None:
    """Return why a certificate is not valid now; `expired` is the problem name for an expired one. None if it is."""
    if valid.not_after <= now:
        return Problem(expired, f"the certificate has expired at {valid.not_after.isoformat()}")
    if valid.not_before > now:
        return Problem(ProblemName.NOT_YET_VALID, f"the certificate is valid from {valid.not_before.isoformat()} on")
    return None


# --- values ----------------------------------------------------------------------------------------------------------


class Side(StrEnum):
    SERVER = "server"
    CLIENT = "client"


class Phase(StrEnum):
    STEADY = "steady"
    PUBLISHING = "publishing"
    RETIRING = "retiring"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes and renewal times. They are checked so that a rollover ends before the old certificates expire."""

    authority: timedelta = timedelta(days=365)
    authority_renewal: timedelta = timedelta(days=60)
    leaf: timedelta = timedelta(days=90)
    leaf_renewal: timedelta = timedelta(days=35)
    settle: timedelta = timedelta(hours=1)
    connection_age: timedelta = timedelta(minutes=15)

    def __post_init__(self) -> None:
        rollover = 2 * self.settle + self.connection_age
        ordered = (
            ("settle and connection age", rollover, "leaf renewal", self.leaf_renewal),
            ("leaf renewal", self.leaf_renewal, "leaf lifetime", self.leaf),
            ("leaf renewal and rollover", self.leaf_renewal + rollover, "authority renewal", self.authority_renewal),
            ("authority renewal", self.authority_renewal, "authority lifetime", self.authority),
        )
        for smaller, less, larger, more in ordered:
            if less >= more:
                raise ValueError(f"{smaller} ({less}) must be shorter than {larger} ({more})")


@dataclass(frozen=True, slots=True)
class Identity:
    """The names in the certificates. `authority` is the subject of the issuer."""

    authority: str
    server: ServerNames
    client: str

    def wanted(self, side: Side) -> tuple[str, ...]:
        """Return the alternative names that a leaf must have."""
        match side:
            case Side.SERVER:
                return (*self.server.dns, *self.server.addresses, self.server.identity)
            case Side.CLIENT:
                return (self.client,)
            case _:
                assert_never(side)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The stored authorities: `current` signs, `next` is being published, `previous` are trusted but no longer sign."""

    current: Credential
    next: Credential | None = None
    previous: tuple[bytes, ...] = ()

    @property
    def phase(self) -> Phase:
        if self.next is not None:
            return Phase.PUBLISHING
        return Phase.RETIRING if self.previous else Phase.STEADY

    @property
    def trust(self) -> tuple[bytes, ...]:
        upcoming = () if self.next is None else (self.next.certificate,)
        return (self.current.certificate, *upcoming, *self.previous)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The certificate and trust bundle of one side; `written_at` is the time of their last change."""

    credential: Credential
    trust: tuple[bytes, ...]
    written_at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """The stored certificates; None if missing or unreadable."""

    issuer: Authorities | None = None
    server: Leaf | None = None
    client: Leaf | None = None

    def leaf(self, side: Side) -> Leaf | None:
        match side:
            case Side.SERVER:
                return self.server
            case Side.CLIENT:
                return self.client
            case _:
                assert_never(side)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in (self.server, self.client) if leaf is not None)


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateAuthority:
    """Create a new authority; keep trusting the authorities in `trusted`."""

    reason: str
    trusted: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PrepareAuthority:
    """Phase 1."""


@dataclass(frozen=True, slots=True)
class SwitchAuthority:
    """Phase 2."""


@dataclass(frozen=True, slots=True)
class DropPrevious:
    """Phase 3."""


@dataclass(frozen=True, slots=True)
class IssueLeaf:
    side: Side
    reason: str


@dataclass(frozen=True, slots=True)
class PublishTrust:
    side: Side


IssuerStep = CreateAuthority | PrepareAuthority | SwitchAuthority | DropPrevious
LeafStep = IssueLeaf | PublishTrust
Step = IssuerStep | LeafStep


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that are due now, and the time of the next check. Steps of the issuer are stored first."""

    steps: tuple[Step, ...]
    due: datetime
