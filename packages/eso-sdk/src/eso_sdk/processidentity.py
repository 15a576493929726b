"""Decide which stores may use the identity of the provider's own process, and which servers may receive a proof of it.

The process has an identity that no store brings along: the token of its pod, a web identity or federated token file, the
metadata service of its machine, credentials in its environment. An administrator assigned it. The author of a
namespaced store is a tenant, who must neither act under that identity nor receive a token or signature that proves it.

| rule | default | the administrator changes it with |
|---|---|---|
| only cluster-scoped stores and generators use it | yes | `--ambient-identity=namespaced` |
| proofs go to the vendor's own hosts and to listed hosts, over TLS | no host is listed | `--identity-host` |

Credentials and service accounts that a store names are not concerned: they belong to the author of the store.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from eso_sdk.errors import invalid_config
from eso_wire.values import ObjectRef

if TYPE_CHECKING:
    from yarl import URL

_ENTRY: Final = re.compile(r"(http://(?!\.))?\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*")


class AmbientIdentity(StrEnum):
    """Whose stores and generators may use the identity of the process."""

    CLUSTER = "cluster"
    """Those that are cluster-scoped: an administrator wrote them."""
    NAMESPACED = "namespaced"
    """Those of every namespace too."""


class ProcessIdentityError(ValueError):
    """A rule that cannot be read; the text says what to write."""


@dataclass(frozen=True, slots=True)
class ProcessIdentityPolicy:
    """The administrator's rules for the identity of one provider's process."""

    scope: AmbientIdentity = AmbientIdentity.CLUSTER
    hosts: frozenset[str] = frozenset()
    """`HOST` and `.SUFFIX` receive proofs over TLS only; `http://HOST` without TLS too."""

    @classmethod
    def parse(cls, scope: str, hosts: Iterable[str]) -> ProcessIdentityPolicy:
        """Read the flags. Raises `ProcessIdentityError`."""
        if scope not in list(AmbientIdentity):
            raise ProcessIdentityError(f'"{scope}" is not a value of --ambient-identity; write cluster or namespaced')
        return cls(AmbientIdentity(scope), frozenset(_checked(entry) for entry in hosts))

    def check_holder(self, holder: ObjectRef, place: str, *, own: str, instead: str) -> None:
        """Refuse a namespaced store or generator that would use the identity of the process.

        `place` is the field that would name other credentials, `own` names the identity ("AWS role"), and `instead`
        says what the author can set.
        """
        if holder.namespace and self.scope is AmbientIdentity.CLUSTER:
            raise invalid_config(
                place,
                f"this {holder.kind or 'object'} would use the {own} of the provider itself, which serves cluster-scoped"
                f" objects only; {instead}, or let the administrator start the provider with"
                f" --ambient-identity={AmbientIdentity.NAMESPACED.value}",
            )

    def check_host(self, url: URL, place: str, *, own: str, vendor: Collection[str] = ()) -> None:
        """Refuse to send a proof of the process's identity to a server that neither vendor nor administrator names.

        `place` is the field that names the server. Entries of `vendor` are hosts, or suffixes that begin with a dot.
        """
        host = _plain(url.host or "")
        secure = url.scheme in ("https", "wss")
        if secure and (_matches(host, vendor) or _matches(host, self.hosts)):
            return
        if not secure and f"http://{host}" in self.hosts:
            return
        entry = host if secure else f"http://{host}"
        raise invalid_config(
            place,
            f'would send a proof of the provider\'s own identity ({own}) to "{host}", which the administrator of the'
            f" provider does not list; name credentials or a service account in the store, or let the administrator"
            f" start the provider with --identity-host={entry}",
        )


STRICT: Final = ProcessIdentityPolicy()
"""The default: cluster-scoped objects only, and no host besides the vendor's."""


def _checked(entry: str) -> str:
    text = _plain(entry.strip())
    if not _ENTRY.fullmatch(text):
        raise ProcessIdentityError(
            f'"{entry}" is not a host that may receive proofs of the identity; write vault.example.com, .example.com for'
            " all hosts below it, or http://vault.example.com for one without TLS"
        )
    return text


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _matches(host: str, entries: Collection[str]) -> bool:
    return any(host.endswith(entry) if entry.startswith(".") else host == entry for entry in entries)
