"""The addresses of Google's services: those that Google publishes, or those that the provider's environment names.

| variable | service |
|---|---|
| `GOOGLE_SECRETMANAGER_ENDPOINT` | Secret Manager; `{location}` in it stands for the location of a regional store |
| `GOOGLE_STS_ENDPOINT` | exchange of tokens of other identity providers |
| `GOOGLE_SECURETOKEN_ENDPOINT` | exchange of tokens of a GKE cluster |
| `GOOGLE_IAM_CREDENTIALS_ENDPOINT` | access tokens of impersonated service accounts |
| `GOOGLE_PUBSUB_ENDPOINT` | Pub/Sub |
| `GCE_METADATA_HOST` | the metadata server |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from eso_sdk.errors import invalid_config

SECRET_MANAGER: Final = "GOOGLE_SECRETMANAGER_ENDPOINT"  # noqa: S105 - the name of a variable
STS: Final = "GOOGLE_STS_ENDPOINT"
SECURE_TOKEN: Final = "GOOGLE_SECURETOKEN_ENDPOINT"  # noqa: S105 - the name of a variable
IAM_CREDENTIALS: Final = "GOOGLE_IAM_CREDENTIALS_ENDPOINT"
PUBSUB: Final = "GOOGLE_PUBSUB_ENDPOINT"
METADATA: Final = "GCE_METADATA_HOST"

_PUBLISHED: Final = {
    STS: "https://sts.googleapis.com",
    SECURE_TOKEN: "https://securetoken.googleapis.com",
    PUBSUB: "https://pubsub.googleapis.com",
    IAM_CREDENTIALS: "https://iamcredentials.googleapis.com",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a gRPC channel leads."""

    address: str
    secure: bool = True


def base_of(variable: str) -> str:
    """Return the URL of a service, without a slash at its end."""
    return (os.environ.get(variable) or _PUBLISHED[variable]).rstrip("/")


def metadata_url(path: str) -> str:
    return f"http://{os.environ.get(METADATA) or 'metadata.google.internal'}/computeMetadata/v1/{path}"


def secret_manager(location: str) -> Target:
    """Return the address of Secret Manager, or of its regional endpoint."""
    if named := os.environ.get(SECRET_MANAGER, ""):
        parts = urlsplit(named.replace("{location}", location))
        if not parts.netloc or parts.scheme not in ("http", "https"):
            raise invalid_config("/", f"{SECRET_MANAGER} of the provider is not a http or https URL; correct it")
        port = "" if parts.port else ":443" if parts.scheme == "https" else ":80"
        return Target(parts.netloc + port, secure=parts.scheme == "https")
    host = f"secretmanager.{location}.rep.googleapis.com" if location else "secretmanager.googleapis.com"
    return Target(f"{host}:443")
