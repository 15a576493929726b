"""The file of a recording: answers of providers and live objects, with stand-ins for all values.

    providers    handshake of each provider, by its Service
    stores       digest of each store's configuration: an answer counts only for the same configuration
    answers      question to a store -> its answer
    objects      live objects that the plan read; `asked` are all that it looked for
    targets      for each key of a target: digest of its text made from stand-ins, and its change when it was recorded
    pushes       the same for each pushed value
    failed       objects whose templates failed when they were recorded, so not because of stand-ins

Nothing in it can be turned into a value again: the key of the stand-ins is not stored.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Config
from kubebase.meta import JsonObject

VERSION: Final = 1
MAX_BYTES: Final = 64 * 1024 * 1024
UNRECORDED: Final = "the recording does not contain"
_SALT_BYTES: Final = 16
_SCRYPT: Final = {"n": 2**12, "r": 8, "p": 1, "dklen": 16}
"""The configuration of a store can contain short values, so its digest is slow to compute."""


class RecordingError(Exception):
    """A file is not a usable recording; the message says why and what to do."""


class RecordedKey(msgspec.Struct, frozen=True):
    """One key of a target."""

    digest: str
    change: str


class RecordedResponse(msgspec.Struct, frozen=True):
    """One answer of a provider, for one question to one store."""

    store: str
    recorded_call: JsonObject = msgspec.field(name="question")
    response: JsonObject = msgspec.field(name="answer")


class Recording(msgspec.Struct):
    version: int = VERSION
    eso: str = ""
    salt: str = msgspec.field(default_factory=lambda: secrets.token_hex(_SALT_BYTES))
    providers: dict[str, JsonObject] = {}
    stores: dict[str, str] = {}
    responses: list[RecordedResponse] = msgspec.field(default_factory=list, name="answers")
    objects: list[JsonObject] = []
    reads: list[str] = msgspec.field(default_factory=list, name="asked")
    targets: dict[str, dict[str, RecordedKey]] = {}
    pushes: dict[str, RecordedKey] = {}
    failed: list[str] = []

    def config_digest(self, config: Config) -> str:
        """Return the digest of the configuration of a store, without its credentials."""
        spec = b"" if config.spec_json is None else _canonical(config.spec_json.reveal())
        text = f"{config.kind}\n".encode() + spec
        return hashlib.scrypt(text, salt=bytes.fromhex(self.salt), **_SCRYPT).hex()


def canonical(recorded_call: Mapping[str, Any]) -> str:
    """Return one spelling of a question, to look it up."""
    return json.dumps(recorded_call, sort_keys=True, separators=(",", ":"))


def write(recording: Recording, path: Path) -> None:
    """Write the file. Raises RecordingError if the recording is too large, and OSError."""
    raw = json.dumps(msgspec.to_builtins(recording), indent=1, sort_keys=True).encode() + b"\n"
    if len(raw) > MAX_BYTES:
        limit = MAX_BYTES // 1024 // 1024
        raise RecordingError(f"{path}: the recording is larger than {limit} MiB; plan fewer manifests at a time")
    path.write_bytes(raw)


def read(path: Path) -> Recording:
    """Read the file. Raises RecordingError."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
    except OSError as problem:
        raise RecordingError(f"{path}: {problem.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise RecordingError(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB, so it is not a recording")
    try:
        version = msgspec.json.decode(raw, type=_Versioned).version
        if version != VERSION:
            text = f"version {version} of the recording is not supported, only {VERSION}; record again with --record"
            raise RecordingError(f"{path}: {text}")
        return msgspec.json.decode(raw, type=Recording)
    except msgspec.MsgspecError as problem:
        # The text names the place of the problem, never its content.
        raise RecordingError(f"{path}: not a recording of eso plan: {problem}; record again with --record") from None


class _Versioned(msgspec.Struct):
    version: int


def _canonical(document: bytes) -> bytes:
    try:
        return json.dumps(json.loads(document), sort_keys=True).encode()
    except ValueError:
        return document


def unrecorded(what: str, store: str) -> ProviderError:
    """Return the error for a question that the recording does not answer."""
    message = f"{UNRECORDED} {what} of {store}; record again, or plan against the provider"
    return ProviderError(ErrorReason.INVALID_REQUEST, message)
