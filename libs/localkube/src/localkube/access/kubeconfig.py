"""The kubeconfig with which clients connect to the server."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import yaml

NAME = "localkube"


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """The address and credentials of the server. It holds a credential, so its repr is empty."""

    server: str
    authority_pem: bytes
    token: str

    def __repr__(self) -> str:
        return f"Access(server={self.server!r})"


def kubeconfig(access: Access, *, namespace: str = "default") -> str:
    """Return a complete kubeconfig with one context, as YAML. It carries the token: write it with mode 0600."""
    authority = base64.b64encode(access.authority_pem).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": access.server, "certificate-authority-data": authority}}],
        "users": [{"name": NAME, "user": {"token": access.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(document, sort_keys=False)
