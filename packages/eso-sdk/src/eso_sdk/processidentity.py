"""Decide which stores may use the identity of the provider's own process, and which servers may receive a proof of it.

The process has an identity that no store brings along: the token of its pod, a web identity or federated token file,
the metadata service of its machine, credentials in its environment. An administrator assigned it. The author of a
namespaced store is a tenant, who must neither act under that identity nor receive a token or signature that proves it.

| rule | default | the administrator changes it with |
|---|---|---|
| only cluster-scoped stores and generators use it | yes | `--ambient-identity=namespaced` |
| proofs go to the vendor's own hosts and to listed hosts, over TLS | no host is listed | `--identity-host` |
| specs name only listed files of the container | no file is listed | `--identity-file` |

Credentials and service accounts that a store names are not concerned: they belong to the author of the store.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eso_api.values import SecretBytes
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_wire.values import ObjectRef

if TYPE_CHECKING:
    from yarl import URL

MAX_FILE: Final = 64 * 1024
"""Bytes of a file that a spec may name; tokens and keys are smaller."""
POD_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
"""The token of the provider's own pod."""
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
    """`HOST` and `.SUFFIX` receive proofs over TLS only, `http://HOST` without TLS."""
    files: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, scope: str, hosts: Iterable[str] = (), files: Iterable[str] = ()) -> ProcessIdentityPolicy:
        """Read the flags. Raises `ProcessIdentityError`."""
        if scope not in list(AmbientIdentity):
            raise ProcessIdentityError(f'"{scope}" is not a value of --ambient-identity; write cluster or namespaced')
        listed = frozenset(files)
        for path in listed:
            if not Path(path).is_absolute():
                raise ProcessIdentityError(f'"{path}" is not a file for --identity-file; write an absolute path')
        return cls(AmbientIdentity(scope), frozenset(map(_host_entry, hosts)), listed)


STRICT: Final = ProcessIdentityPolicy()
"""The default: cluster-scoped objects only, no host besides the vendor's, no file."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of the process, as one store or generator may use it."""

    policy: ProcessIdentityPolicy
    holder: ObjectRef
    """The store or generator, which decides whether an administrator or a tenant wrote the configuration."""

    def use(self, own: str, *, field: str, instead: str) -> None:
        """Refuse a namespaced store or generator. Call this before anything is done with the identity.

        `own` names the identity ("AWS role"), `place` is the field that could name other credentials, and `instead`
        says what the author can set there.
        """
        if self.holder.namespace and self.policy.scope is AmbientIdentity.CLUSTER:
            raise invalid_config(
                field,
                f"this {self.holder.kind or 'object'} would use the {own} of the provider itself, which serves"
                f" cluster-scoped objects only; {instead}, or let the administrator start the provider with"
                f" --ambient-identity={AmbientIdentity.NAMESPACED.value}",
            )

    def prove(self, own: str, to: URL, *, field: str, vendor: Collection[str] = ()) -> None:
        """Refuse to send a proof of the identity to a server that neither the vendor nor the administrator names.

        `place` is the field that names the server. Entries of `vendor` are hosts, or suffixes that begin with a dot.
        """
        host = _plain(to.host or "")
        if to.scheme == "https":
            known = any(_matches(host, entry) for entry in (*vendor, *self.policy.hosts))
        else:
            known = f"http://{host}" in self.policy.hosts
        if not known:
            raise invalid_config(
                field,
                f'would send a proof of the {own} of the provider itself to "{host}", which its administrator does not'
                " list; let the store name credentials or a service account, or let the administrator start the"
                f" provider with --identity-host={host if to.scheme == 'https' else f'http://{host}'}",
            )

    def check_file(self, path: str, *, field: str, own: str = "") -> None:
        """Refuse a file of the container that the administrator does not list. `place` is the field with its path.

        `own` is a file that belongs to the identity itself, and needs no entry.
        """
        self.use("files", field=field, instead="use another form of authentication")
        if path != own and path not in self.policy.files:
            raise invalid_config(
                field,
                "names a file that specs may not use; let the administrator start the provider with --identity-file and"
                " its path",
            )

    def read_file(self, path: str, *, field: str, own: str = "") -> SecretBytes:
        """Return the content of such a file. It blocks: call it in a thread.

        Devices, pipes and large files are refused: the author of a store chooses the path.
        """
        self.check_file(path, field=field, own=own)
        return _content(path, field)


def _content(path: str, field: str) -> SecretBytes:
    try:
        # Non-blocking, because opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        raise credentials_not_found(
            f"the file of {field} cannot be read in the provider's container; check that it is mounted there"
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise invalid_config(field, "names something that is not a regular file")
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise invalid_config(field, f"names a file that is larger than {MAX_FILE} bytes")
    return SecretBytes(content)


def _host_entry(entry: str) -> str:
    text = _plain(entry.strip())
    if not _ENTRY.fullmatch(text):
        raise ProcessIdentityError(
            f'"{entry}" is not a host for --identity-host; write vault.example.com, .example.com for all hosts below'
            " it, or http://vault.example.com for a server without TLS"
        )
    return text


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _matches(host: str, entry: str) -> bool:
    return host.endswith(entry) if entry.startswith(".") else host == entry
