"""Certificates as values, and the parts of checks that need no cryptography."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

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
