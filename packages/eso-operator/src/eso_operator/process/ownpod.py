"""The namespace and the service account of the operator's own pod.

    namespace   POD_NAMESPACE, else the mounted file, else `external-secrets`
    account     POD_SERVICE_ACCOUNT, else the subject of the mounted token, else `external-secrets`

The token counts only if the pod runs in the core namespace: the operator's identity is that of an account there. It
is our own token, so its signature is not checked.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

DEFAULT_NAMESPACE: Final = "external-secrets"
DEFAULT_ACCOUNT: Final = "external-secrets"


class _Claims(msgspec.Struct):
    sub: str = ""


def own_namespace(environ: Mapping[str, str], folder: Path) -> str:
    """Return the namespace of this pod. `folder` is where Kubernetes mounts the service account."""
    return environ.get("POD_NAMESPACE") or _content(folder / "namespace") or DEFAULT_NAMESPACE


def own_account(environ: Mapping[str, str], folder: Path, namespace: str) -> str:
    """Return the service account of this pod in the core namespace."""
    if named := environ.get("POD_SERVICE_ACCOUNT"):
        return named
    home, account = _subject_of(_content(folder / "token"))
    return account if account and home == namespace else DEFAULT_ACCOUNT


def _subject_of(token: str) -> tuple[str, str]:
    """Return the namespace and the name of the service account that a token belongs to; empty if it names none."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return "", ""
    match claims.sub.split(":"):
        case ["system", "serviceaccount", namespace, name]:
            return namespace, name
        case _:
            return "", ""


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
