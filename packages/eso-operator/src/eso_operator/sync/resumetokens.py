"""How far streams of changes were heard, on record: a process that takes over goes on there, and reads nothing twice.

    load -> take: where an earlier process was       save: where this one is, if that is something else

They stand in an annotation of a Lease: small, bounded, and written by one process at a time, because every write names
the version it is based on. A record that cannot be read or written costs reads, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.leader import LEASES, Leases
from kuberun.meta import JsonObject, ObjectKey

_log = structlog.get_logger(__name__)

ANNOTATION: Final = "external-secrets.io/resume-tokens"
MAX_STREAMS: Final = 500
MAX_TOKEN: Final = 1024
MAX_BYTES: Final = 128 * 1024
"""An object holds twice as much in its annotations."""
_PATIENCE: Final = 5.0


class ResumeTokens:
    """By name of the stream. An empty token: it was heard, and its provider gives none, or one that is too long."""

    def __init__(self, leases: Leases, key: ObjectKey, clock: Clock) -> None:
        self._leases = leases
        self._key = key
        self._clock = clock
        self._lease: JsonObject | None = None
        self._known: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._loaded = False

    async def load(self) -> None:
        """What an earlier process has left; looked for once."""
        if self._loaded:
            return
        self._loaded = True
        try:
            async with Deadline(self._clock, _PATIENCE):
                await self._look()
        except (ApiError, OSError) as error:
            _log.warning("resume tokens not read", lease=str(self._key), error=type(error).__name__)
        self._found = dict(self._known)

    def was_heard(self, name: str) -> bool:
        """Whether an earlier process has heard this stream."""
        return name in self._found

    def take(self, name: str) -> str:
        """Where an earlier process was, once: after that, this process knows better."""
        token = self._found.get(name, "")
        if token:
            self._found[name] = ""  # heard all the same
        return token

    async def save(self, tokens: Mapping[str, str]) -> None:
        """Keep these, besides those of streams that are not among them. Writes nothing that is on record."""
        wanted = bounded({**self._known, **tokens}, newest=tokens)
        if wanted == self._known:
            return
        try:
            async with Deadline(self._clock, _PATIENCE):
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
                kept = metadata.get("annotations") or {}
                changed = {**metadata, "annotations": {**kept, **annotations}}
                self._lease = await self._leases.update(LEASES, {**self._lease, "metadata": changed})
        except (AlreadyExists, Conflict, NotFound):
            await self._look()  # somebody else was there: the next save is based on that
        else:
            self._known = tokens

    async def _look(self) -> None:
        self._lease, self._known = None, {}
        try:
            self._lease = await self._leases.get(LEASES, self._key)
        except NotFound:
            return
        self._known = _tokens_in(self._lease)


def bounded(tokens: Mapping[str, str], *, newest: Mapping[str, str]) -> dict[str, str]:
    """What there is room for: others go before those that are heard now, and long tokens before short ones."""
    others = [name for name in tokens if name not in newest]
    names = [*others, *newest][-MAX_STREAMS:]
    kept = {name: tokens[name] if len(tokens[name]) <= MAX_TOKEN else "" for name in names}
    room = MAX_BYTES - len(msgspec.json.encode(kept))
    for name in sorted(kept, key=lambda each: len(kept[each]), reverse=True):
        if room >= 0:
            break
        room += len(msgspec.json.encode(kept[name])) - len('""')
        kept[name] = ""
    return kept


def _tokens_in(lease: JsonObject) -> dict[str, str]:
    """Nothing, if somebody wrote something else there."""
    try:
        text = lease["metadata"]["annotations"][ANNOTATION]
        return msgspec.json.decode(text, type=dict[str, str])
    except (KeyError, TypeError, msgspec.MsgspecError):
        return {}
