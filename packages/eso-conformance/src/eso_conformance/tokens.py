"""The service account token for providers that require one, read again for every call.

Tokens expire within the hour, so the file may be renewed during a run. Its content goes only into the metadata of
calls.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Final

import grpc
import msgspec

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):[a-z0-9.-]{1,253}")


class TokenError(ValueError):
    """The file contains no usable token; the text says why, and never quotes it."""


def read_token(path: Path) -> str:
    """Read the current token from the file."""
    try:
        found = _TOKEN.fullmatch(path.read_bytes().decode("ascii", "replace").strip())
    except OSError as problem:
        raise TokenError(f"{path}: {problem.strerror}") from problem
    if found is None:
        raise TokenError(f"{path}: it holds no token")
    return found[0]


def namespace_of(token: str) -> str:
    """Return the namespace of the token's account; empty if the token does not name it. Nothing is verified."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, ValueError):
        return ""
    account = _SUBJECT.fullmatch(claims.sub)
    return "" if account is None else account[1]


def bearer(path: Path) -> grpc.CallCredentials:
    """Send the file's current token with every call."""
    return grpc.metadata_call_credentials(_Bearer(path))


class _Claims(msgspec.Struct):
    sub: str = ""


class _Bearer(grpc.AuthMetadataPlugin):
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, _: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            token = read_token(self._path)
        except TokenError as problem:
            callback((), problem)  # gRPC logs exceptions raised here with all their details
        else:
            callback((("authorization", f"Bearer {token}"),), None)
