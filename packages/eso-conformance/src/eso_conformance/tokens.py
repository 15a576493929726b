"""The token of a service account, for providers that serve nobody without one: read anew for every call.

Tokens end within the hour, so whoever renews the file renews the run. What is in the file goes into the metadata of
calls, and nowhere else.
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
    """A file that is of no use as a token; the text says why, and never what is in it."""


def read_token(path: Path) -> str:
    """What the file holds now."""
    try:
        found = _TOKEN.fullmatch(path.read_bytes().decode("ascii", "replace").strip())
    except OSError as problem:
        raise TokenError(f"{path}: {problem.strerror}") from problem
    if found is None:
        raise TokenError(f"{path}: it holds no token")
    return found[0]


def namespace_of(token: str) -> str:
    """Of the account whose token it is; empty where the token does not say it. Nothing is verified here."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, ValueError):
        return ""
    account = _SUBJECT.fullmatch(claims.sub)
    return "" if account is None else account[1]


def bearer(path: Path) -> grpc.CallCredentials:
    """Every call carries what the file holds by then."""
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
            callback((), problem)  # what is raised here, gRPC logs with all it knows
        else:
            callback((("authorization", f"Bearer {token}"),), None)
