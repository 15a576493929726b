"""Opened stores and generators, kept while they are used.

    use(key, make) -> the session for that key, opened at most once; closed when it is forgotten and no call uses it,
                      or at once if it did not open

A login to a backend costs more than a read, so a session outlives its call. It is limited by the number of sessions
(the least recently used one of the namespace with the most sessions is evicted), by an idle timeout, and by the key,
which changes with every credential.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from eso_api.values import SecretBytes
from eso_sdk.accounts import ServiceAccount
from eso_sdk.backend import Backend
from eso_sdk.redaction import FAILURES, seat
from eso_wire.values import Context, Credential, ObjectRef, Token
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairTable

MAX_SESSIONS: Final = 256
IDLE_SECONDS: Final = 600.0
OPEN_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 10.0

_log = structlog.get_logger("eso_sdk.session")


@dataclass(frozen=True, slots=True)
class Session:
    """An opened backend, its identity, and the gate that limits its concurrent calls."""

    key: bytes
    backend: Backend[Any]
    gate: asyncio.Semaphore


class _Entry:
    __slots__ = ("forgotten", "key", "last_used", "opened", "opening", "session", "users")

    def __init__(self, key: bytes, session: Session, opened: asyncio.Future[BaseException | None]) -> None:
        self.key = key
        self.session = session
        self.opened = opened
        """Done when `open` has returned: with its exception, or None."""
        self.opening: asyncio.Task[None] | None = None
        self.users = 0
        self.last_used = 0.0
        self.forgotten = False


class Sessions:
    """The sessions of one process."""

    def __init__(
        self,
        clock: Clock,
        *,
        limit: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
        on_change: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._clock = clock
        self._idle = idle_seconds
        self._on_change = on_change
        self._entries: FairTable[bytes, _Entry] = FairTable(limit)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, key: bytes, make: Callable[[], Session], owner: str = "") -> AsyncIterator[Session]:
        """Yield the session for `key`, created and opened if needed. Callers that arrive while it opens wait for it.

        `owner` is the namespace to which the session counts: many sessions of one namespace do not evict those of
        others.
        """
        self.forget_idle()
        entry = self._entries.get(key) or self._start(key, make(), owner)
        entry.users += 1
        try:
            # The future is shared: a caller that is cancelled must not cancel it for the others.
            if failure := await asyncio.shield(entry.opened):
                raise failure
            yield entry.session
        finally:
            entry.users -= 1
            entry.last_used = self._clock.monotonic()
            self._close_if_over(entry)

    def forget(self, key: bytes) -> None:
        """Evict a session whose login the backend rejects. The next call with this key logs in again."""
        if entry := self._entries.pop(key):
            self._drop(entry)

    def forget_holder(self, holder: ObjectRef) -> None:
        """Evict the sessions of a configuration whose object is gone."""
        for entry in self._entries.values():
            if _is_same(entry.session.backend.holder, holder):
                self.forget(entry.key)

    def forget_idle(self) -> None:
        """Evict sessions that have been idle too long."""
        now = self._clock.monotonic()
        for entry in [entry for entry in self._entries.values() if not entry.users and entry.opened.done()]:
            if now - entry.last_used >= self._idle:
                self.forget(entry.key)

    async def sweep(self) -> None:
        """Evict idle sessions even if no calls arrive. Runs until cancelled."""
        while True:
            await self._clock.sleep(self._idle / 2)
            self.forget_idle()

    async def close(self) -> None:
        """Evict all sessions and wait until they are closed. Sessions that are still opening are cancelled."""
        for entry in self._entries.values():
            self.forget(entry.key)
            if entry.opening is not None and not entry.opened.done():
                entry.opening.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, key: bytes, session: Session, owner: str) -> _Entry:
        entry = _Entry(key, session, asyncio.get_running_loop().create_future())
        entry.last_used = self._clock.monotonic()
        for oldest in self._entries.put(key, entry, owner):
            self._drop(oldest)
        self._on_change(len(self._entries))
        entry.opening = self._own(self._open(entry))
        return entry

    async def _open(self, entry: _Entry) -> None:
        """Open the session in its own task: the first caller may be cancelled while others wait."""
        try:
            async with Deadline(self._clock, OPEN_SECONDS):
                await entry.session.backend.open()
        except FAILURES as exc:  # handed to every caller that waits
            entry.opened.set_result(exc)
            self._give_up(entry)
        except BaseException:
            entry.opened.cancel()
            self._give_up(entry)
            raise
        else:
            entry.opened.set_result(None)
            self._close_if_over(entry)

    def _give_up(self, entry: _Entry) -> None:
        """Drop a session that failed to open, and close it: it may hold resources from before the failure."""
        if self._entries.get(entry.key) is entry:
            self._entries.pop(entry.key)
            self._on_change(len(self._entries))
        self._own(self._close(entry.session.backend))

    def _drop(self, entry: _Entry) -> None:
        entry.forgotten = True
        self._on_change(len(self._entries))
        self._close_if_over(entry)

    def _close_if_over(self, entry: _Entry) -> None:
        """Close a session that is open, evicted and unused."""
        opened = entry.opened.done() and not entry.opened.cancelled() and entry.opened.result() is None
        if entry.forgotten and not entry.users and opened:
            entry.forgotten = False
            self._own(self._close(entry.session.backend))

    async def _close(self, backend: Backend[Any]) -> None:
        try:
            async with Deadline(self._clock, CLOSE_SECONDS):
                await backend.close()
        except FAILURES as exc:  # no caller waits; the session is gone either way
            _log.warning("session not closed cleanly", error=seat(exc))

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_same(one: ObjectRef, other: ObjectRef) -> bool:
    return replace(one, api_version="", generation=0) == replace(other, api_version="", generation=0)


# --- which calls may share a session ---------------------------------------------------------------------------------

# The digest covers everything that determines what a session may read. It never leaves the process.


def identity_of(context: Context, account: ServiceAccount | None = None, *, caller_namespace: str = "") -> bytes:
    """Digest kind, configuration, credentials, auth namespace and the account of the call's token.

    `caller_namespace` is set if results depend on it.
    """
    digest = hashlib.sha256()
    for part in (caller_namespace.encode(), *_parts(context, account)):
        # Lengths distinguish "ab" + "c" from "a" + "bc".
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _parts(context: Context, account: ServiceAccount | None) -> Iterator[bytes]:
    # The account, not its token: the token is renewed every hour, the account stays the same.
    for text in ("", "", "") if account is None else (account.namespace, account.name, account.uid):
        yield text.encode()
    config = context.config
    ref = config.ref
    for text in (*config.kind, ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid, context.auth_namespace):
        yield text.encode()
    yield config.spec_json.reveal() if config.spec_json is not None else b""
    for credential in sorted(config.credentials, key=lambda credential: credential.pointer):
        yield credential.pointer.encode()
        yield from _credential(credential)


def _credential(credential: Credential) -> Iterator[bytes]:
    match credential.value:
        case SecretBytes() as value:
            yield b"value"
            yield value.reveal()
        case Token(name=name) as token if name:
            # The token's account, not the token, which is renewed every few minutes (`Credentials.renew`).
            yield b"account"
            yield from (text.encode() for text in (token.namespace, name, token.uid, *token.audiences))
            for key, text in sorted(token.annotations.items()):
                yield key.encode()
                yield text.encode()
        case Token(token=token):
            yield b"token"
            yield token.reveal()
        case Mapping() as whole:
            yield b"whole"
            for name in sorted(whole):
                yield name.encode()
                yield whole[name].reveal()
