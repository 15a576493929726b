"""Positions of change streams: from which one the next process resumes, so that it need not read everything again.

    Checkpoints   the position up to which all concerned followers have read; pure
        mark(stream, token, owed)  -> the followers that must still read, each with the time of its event
        read / left                -> removes a follower
        no follower remains        -> take_completed(stream) returns the token
    ResumeTokens  the saved positions
        load -> take: the token of a former process       save: the tokens of this process, if they changed

New events do not move a mark, so that a stream that is never quiet still gets a checkpoint. The tokens are in an
annotation of a Lease. Their size is bounded. Writes use optimistic locking, so that two processes cannot overwrite each
other. If the record cannot be read or written, more reads follow, but no change is missed.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from eso_operator.changes.subscriptions import StreamKey
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, ObjectKey
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.leader import LEASES


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    token: str
    owed: dict[ObjectKey, float]
    """The followers that must still read; each with the time (monotonic) of its event."""


class Checkpoints:
    """The marks of streams, at most one for each stream."""

    def __init__(self) -> None:
        self._marks: dict[StreamKey, _Checkpoint] = {}

    def marked(self) -> KeysView[StreamKey]:
        return self._marks.keys()

    def mark(self, stream: StreamKey, token: str, owed: Mapping[ObjectKey, float]) -> None:
        self._marks[stream] = _Checkpoint(token, dict(owed))

    def read(self, key: ObjectKey, notified_at: float) -> None:
        """Record that a follower has read the change of that time."""
        for mark in self._marks.values():
            if key in mark.owed and notified_at >= mark.owed[key]:
                del mark.owed[key]

    def left(self, key: ObjectKey) -> None:
        """Remove an object that no longer follows anything."""
        for mark in self._marks.values():
            mark.owed.pop(key, None)

    def take_completed(self, stream: StreamKey) -> str | None:
        """Remove the mark and return its token, if all followers have read; else return None."""
        mark = self._marks.get(stream)
        if mark is None or mark.owed:
            return None
        return self._marks.pop(stream).token

    def forget(self, stream: StreamKey) -> None:
        self._marks.pop(stream, None)


_log = structlog.get_logger(__name__)

ANNOTATION: Final = "external-secrets.io/resume-tokens"
MAX_STREAMS: Final = 500
MAX_TOKEN: Final = 1024
MAX_BYTES: Final = 128 * 1024
"""Half of the size that the API server permits for the annotations of an object."""
_TIMEOUT: Final = 5.0


class ResumeTokens:
    """Tokens by stream name. An empty token means: the stream was open, but gave no token or one that is too long."""

    def __init__(self, leases: Client, key: ObjectKey, clock: Clock) -> None:
        self._leases = leases
        self._key = key
        self._clock = clock
        self._lease: JsonObject | None = None
        self._known: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._loaded = False

    async def load(self) -> None:
        """Read the tokens of a former process; only the first call does."""
        if self._loaded:
            return
        self._loaded = True
        try:
            async with Deadline(self._clock, _TIMEOUT):
                await self._read()
        except (ApiError, OSError) as error:
            _log.warning("resume tokens not read", lease=str(self._key), error=type(error).__name__)
        self._found = dict(self._known)

    def was_open(self, name: str) -> bool:
        """Return whether a former process had this stream open."""
        return name in self._found

    def take(self, name: str) -> str:
        """Return the token of a former process. Later calls return an empty token: this process has a newer one."""
        token = self._found.get(name, "")
        if token:
            self._found[name] = ""  # `was_open` stays true
        return token

    async def save(self, tokens: Mapping[str, str]) -> None:
        """Save these tokens and keep those of other streams. Sends no request if nothing changed."""
        wanted = bounded({**self._known, **tokens}, newest=tokens)
        if wanted == self._known:
            return
        try:
            async with Deadline(self._clock, _TIMEOUT):
                await self._write(wanted)
        except (ApiError, OSError) as error:
            _log.warning("resume tokens not written", lease=str(self._key), error=type(error).__name__)

    async def _write(self, tokens: dict[str, str]) -> None:
        annotations = {ANNOTATION: msgspec.json.encode(tokens).decode()}
        try:
            if self._lease is None:
                metadata = {"namespace": self._key.namespace, "name": self._key.name, "annotations": annotations}
                self._lease = await self._leases.create(LEASES, {"metadata": metadata, "spec": {}})
            else:
                metadata = self._lease["metadata"]
                retained = metadata.get("annotations") or {}
                changed = {**metadata, "annotations": {**retained, **annotations}}
                self._lease = await self._leases.update(LEASES, {**self._lease, "metadata": changed})
        except (AlreadyExists, Conflict, NotFound):
            await self._read()  # another process wrote the Lease: the next save is based on that
        else:
            self._known = tokens

    async def _read(self) -> None:
        self._lease, self._known = None, {}
        try:
            self._lease = await self._leases.get(LEASES, self._key)
        except NotFound:
            return
        self._known = _tokens_in(self._lease)


class NoTokens:
    """No resume tokens, for replicas that share the objects: a position of one says nothing about what others read.

    An object that moves to this process reads once when it joins a stream.
    """

    async def load(self) -> None: ...

    def was_open(self, _: str) -> bool:
        return True

    def take(self, _: str) -> str:
        return ""

    async def save(self, tokens: Mapping[str, str]) -> None: ...


def bounded(tokens: Mapping[str, str], *, newest: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens that fit: evict streams that are not in `newest` first, and empty long tokens first."""
    others = [name for name in tokens if name not in newest]
    names = [*others, *newest][-MAX_STREAMS:]
    retained = {name: tokens[name] if len(tokens[name]) <= MAX_TOKEN else "" for name in names}
    room = MAX_BYTES - len(msgspec.json.encode(retained))
    for name in sorted(retained, key=lambda each: len(retained[each]), reverse=True):
        if room >= 0:
            break
        room += len(msgspec.json.encode(retained[name])) - len('""')
        retained[name] = ""
    return retained


def _tokens_in(lease: JsonObject) -> dict[str, str]:
    """Return the tokens in the annotation; empty if it is missing or not ours."""
    try:
        text = lease["metadata"]["annotations"][ANNOTATION]
        return msgspec.json.decode(text, type=dict[str, str])
    except (KeyError, TypeError, msgspec.MsgspecError):
        return {}
