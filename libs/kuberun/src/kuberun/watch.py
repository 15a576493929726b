r"""List and watch one resource: a pure state machine, and the loop that drives it over a `Source`.

    Listing --last page--> Streaming --410, or unreadable twice--> Listing ...
       \--failure--> Waiting <--failure--/          after the back-off, Waiting resumes the state before it

`step` turns (state, signal) into (events, state) without I/O. `Watcher.run` produces the signals: pages, frames and
failures. Guarantees to the receiver of the events:

- `Listed` holds every object that exists; an object missing from it is deleted. A list of several pages is delivered
  page by page (`PageListed`), so that it is never in memory as a whole; then `PagesEnded` says which objects exist.
  `Applied` and `Deleted` follow in the server's order. The last event for an object is its last state.
- A stream is resumed only at a position up to which everything was delivered. A frame that cannot be read is never
  skipped: the stream is resumed before that frame, and if the frame fails again, all objects are listed.
- An object that does not fit its type arrives as `Malformed`, like any other object.

Lists request the newest state (no resourceVersion), so a lagging API server cannot move an informer back in time. This
module stores no objects; `cache` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, NoReturn, Protocol, TypeVar, assert_never

import msgspec
import structlog

from kubebase.backoff import ExponentialBackoff, Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline, happens_within
from kubebase.meta import Malformed, ObjectKey, Page, key_of, version_of
from kuberun.errors import ApiError, BadResponse

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Source(Protocol[T]):
    """The pages and frames that a watch reads. `kuberun.client` implements it for API servers."""

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]: ...

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of frames, one JSON document each."""
        ...

    def decode(self, raw: bytes) -> T | Malformed: ...


# --- events: what a watch delivers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects at one moment."""

    objects: Sequence[T | Malformed] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PageListed(Generic[T]):
    """Some of the objects of a list; the others follow."""

    objects: Sequence[T | Malformed] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PagesEnded:
    """All pages of a list were delivered. Objects that were on none of them do not exist."""

    pages: tuple[frozenset[ObjectKey], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Applied(Generic[T]):
    """The object was created or changed."""

    object: T | Malformed = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """The object was deleted; `object` is its last state."""

    object: T | Malformed = field(repr=False)


Event = Listed[T] | PageListed[T] | PagesEnded | Applied[T] | Deleted[T]


# --- states ----------------------------------------------------------------------------------------------------------


class ListReason(Enum):
    """Reason for a full list."""

    START = "start"
    EXPIRED = "the position in the stream expired"
    UNREADABLE = "the stream could not be read or was refused"


@dataclass(frozen=True, slots=True)
class Outage:
    """The server does not respond, or responds that it is busy or starting.

    An outage does not count as a failure of the list or stream: it has its own counter. That counter starts again when
    the server begins to respond, because a back-off from before would outlast the start of the server.
    """

    responds: bool
    """Whether the server responds, with a status that says that it is busy or starting."""
    attempts: int = 1


def _outage(before: Outage | None, *, responds: bool) -> Outage:
    if before is None or before.responds != responds:
        return Outage(responds)
    return Outage(responds, before.attempts + 1)


@dataclass(frozen=True, slots=True)
class Listing:
    """The pages of a list are being read."""

    reason: ListReason = ListReason.START
    pages: tuple[frozenset[ObjectKey], ...] = ()
    """The objects on each page that was delivered."""
    continue_token: str = ""
    expiries: int = 0
    """How often the continue token expired during this list. After two expiries the list is requested in one piece."""
    failures: int = 0
    outage: Outage | None = None


@dataclass(frozen=True, slots=True)
class Streaming:
    """The changes after `resource_version` are being received."""

    resource_version: str
    strikes: int = 0
    """Consecutive refused or unreadable responses at this position."""
    failures: int = 0
    """Back-off counter. It starts with the failures of the preceding list, and any frame resets it."""
    outage: Outage | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The watcher is backing off."""

    then: Listing | Streaming
    retry_after: float = 0.0


State = Listing | Streaming | Waiting


# --- signals: what can happen ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    object: T | Malformed


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    object: T | Malformed


@dataclass(frozen=True, slots=True)
class Bookmarked:
    resource_version: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something unreadable arrived."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The server responded with an error, as an HTTP status or as an ERROR frame."""

    code: int
    reason: str = ""
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Disconnected:
    """No response arrived, or the connection broke."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream ended normally, or we closed it after too long a silence."""

    lived: float


@dataclass(frozen=True, slots=True)
class Waited:
    """The back-off is over."""


Signal = Page[T] | Changed[T] | Removed[T] | Bookmarked | Unreadable | Refused | Disconnected | Ended | Waited

_GONE = 410
_BUSY = frozenset({429, 502, 503})
_STRIKES = 2
_WHOLE_LIST_AFTER = 2
_SHORT_LIFE = 5.0


def step(state: State, signal: Signal[T]) -> tuple[Sequence[Event[T]], State]:
    """Return the events to deliver and the next state. Pure."""
    match state:
        case Streaming():
            return _step_streaming(state, signal)
        case Listing():
            return _step_listing(state, signal)
        case Waiting():
            if not isinstance(signal, Waited):
                raise _unexpected(state, signal)
            return (), state.then
        case _:
            assert_never(state)


def _step_listing(state: Listing, signal: Signal[T]) -> tuple[Sequence[Event[T]], State]:
    match signal:
        case Page():
            return _page_arrived(state, signal)
        case Refused(code=code) if code == _GONE and state.pages:
            return (), Listing(state.reason, expiries=state.expiries + 1, failures=state.failures)
        case Refused(code=code, retry_after=retry_after) if code in _BUSY:
            return (), Waiting(replace(state, outage=_outage(state.outage, responds=True)), retry_after)
        case Refused(retry_after=retry_after):
            return (), Waiting(replace(state, failures=state.failures + 1, outage=None), retry_after)
        case Disconnected():
            return (), Waiting(replace(state, outage=_outage(state.outage, responds=False)))
        case Unreadable():
            return (), Waiting(Listing(state.reason, failures=state.failures + 1))
        case Changed() | Removed() | Bookmarked() | Ended() | Waited():
            raise _unexpected(state, signal)
        case _:
            assert_never(signal)


def _page_arrived(state: Listing, page: Page[T]) -> tuple[Sequence[Event[T]], State]:
    after = Streaming(page.resource_version, failures=state.failures)
    if not state.pages and not page.continue_token:
        return (Listed(page.items),), after
    pages = (*state.pages, frozenset(map(key_of, page.items)))
    if page.continue_token:
        return (PageListed(page.items),), replace(state, pages=pages, continue_token=page.continue_token, outage=None)
    return (PageListed(page.items), PagesEnded(pages)), after


def _step_streaming(state: Streaming, signal: Signal[T]) -> tuple[Sequence[Event[T]], State]:
    match signal:
        case Changed(object=obj):
            return (Applied(obj),), Streaming(version_of(obj) or state.resource_version)
        case Removed(object=obj):
            return (Deleted(obj),), Streaming(version_of(obj) or state.resource_version)
        case Bookmarked(resource_version=version):
            return (), Streaming(version or state.resource_version)
        case Ended() | Disconnected() | Refused() | Unreadable():
            return (), _interrupted(state, signal)
        case Page() | Waited():
            raise _unexpected(state, signal)
        case _:
            assert_never(signal)


def _interrupted(state: Streaming, signal: Ended | Disconnected | Refused | Unreadable) -> State:
    """Return the state that follows the end of a stream."""
    failed = replace(state, failures=state.failures + 1, outage=None)
    match signal:
        case Ended(lived=lived) if lived >= _SHORT_LIFE or state.failures == 0:
            # A server that closes the stream at once gets one immediate reconnect, then back-off.
            return replace(state, failures=0 if lived >= _SHORT_LIFE else 1, outage=None)
        case Refused(code=code) if code == _GONE:
            return _relist(state, ListReason.EXPIRED)
        case Refused(code=code, retry_after=retry_after) if code in _BUSY:
            return Waiting(replace(state, outage=_outage(state.outage, responds=True)), retry_after)
        case Refused() | Unreadable() if state.strikes + 1 >= _STRIKES:
            return _relist(state, ListReason.UNREADABLE)
        case Refused() | Unreadable():
            return Waiting(replace(failed, strikes=state.strikes + 1))
        case Disconnected():
            return Waiting(replace(state, outage=_outage(state.outage, responds=False)))
        case Ended():
            return Waiting(failed)
        case _:
            assert_never(signal)


def _relist(state: Streaming, reason: ListReason) -> State:
    """List again: at once the first time, after a back-off if the previous stream delivered nothing either."""
    listing = Listing(reason, failures=state.failures + 1)
    return listing if state.failures == 0 else Waiting(listing)


def _unexpected(state: object, signal: object) -> AssertionError:
    return AssertionError(f"{type(signal).__name__} cannot happen while {type(state).__name__}")


# --- frames ----------------------------------------------------------------------------------------------------------


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _FrameDetails(msgspec.Struct, gc=False):
    retry_after_seconds: int = msgspec.field(default=0, name="retryAfterSeconds")


class _FrameStatus(msgspec.Struct, gc=False):
    code: int = 0
    reason: str = ""
    details: _FrameDetails | None = None


class _Version(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Bookmark(msgspec.Struct, gc=False):
    metadata: _Version


_frame = msgspec.json.Decoder(_Frame)
_status = msgspec.json.Decoder(_FrameStatus)
_bookmark = msgspec.json.Decoder(_Bookmark)


def read_frame(raw: bytes, decode: Callable[[bytes], T | Malformed]) -> Signal[T]:
    """Parse one frame of the stream into a signal. Pure; an unreadable frame becomes `Unreadable`."""
    try:
        frame = _frame.decode(raw)
        match frame.type:
            case "ADDED" | "MODIFIED":
                return _named(Changed(decode(bytes(frame.object))))
            case "DELETED":
                return _named(Removed(decode(bytes(frame.object))))
            case "BOOKMARK":
                return Bookmarked(_bookmark.decode(frame.object).metadata.resource_version)
            case "ERROR":
                status = _status.decode(frame.object)
                retry_after = status.details.retry_after_seconds if status.details else 0
                return Refused(status.code, status.reason, float(retry_after))
            case _:
                return Unreadable("a frame of unknown type")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreadable("a frame that is not a watch event")


def _named(signal: Changed[T] | Removed[T]) -> Signal[T]:
    return signal if key_of(signal.object).name else Unreadable("an object without a name")


# --- the loop --------------------------------------------------------------------------------------------------------


_BACKOFF = ExponentialBackoff(first=0.8, cap=30.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    page_size: int = 500
    request_timeout: float = 60.0
    """Deadline for one page of a list, in seconds."""
    stream_seconds: int = 300
    """The server ends a stream after one to two times this many seconds."""
    inactivity: float = 150.0
    """Seconds of silence after which a stream counts as dead. Servers send a bookmark about once a minute."""
    backoff: ExponentialBackoff = _BACKOFF
    spread: float = 0.0
    """Seconds over which a watch spreads its request after another watch found that the server responds again."""


class ServerRecovery:
    """Lets the watches of one server share that the server responds again after an outage.

    During an outage each watch backs off on its own, by up to half a minute. When the server is back, the first watch
    that reaches it ends the back-off of all others. If the server only responds that it is starting, that ends the
    back-off of the watches that got no response; the others know it already.
    """

    def __init__(self) -> None:
        self._starting = asyncio.Event()
        self._recovered = asyncio.Event()

    def server_starting(self) -> None:
        """End the waits of all watches that got no response."""
        self._starting.set()
        self._starting = asyncio.Event()

    def server_recovered(self) -> None:
        """End the waits of all watches that wait now."""
        self.server_starting()
        self._recovered.set()
        self._recovered = asyncio.Event()

    async def wait(self, clock: Clock, seconds: float, *, at_least: float, silent: bool) -> bool:
        """Wait at least `at_least` and at most `seconds` seconds; return whether a recovery ended the wait.

        Pass `silent` if the server did not respond at all.
        """
        awaited = self._starting if silent else self._recovered
        await clock.sleep(at_least)
        return await happens_within(clock, seconds - at_least, awaited)


class Watcher(Generic[T]):
    """Follows one source until it is cancelled. The watches of one server share `recovery`."""

    def __init__(
        self,
        source: Source[T],
        *,
        clock: Clock,
        name: str = "",
        settings: WatchSettings | None = None,
        draw: Random = system_random,
        recovery: ServerRecovery | None = None,
    ) -> None:
        self._source = source
        self._recovery = recovery or ServerRecovery()
        self._outage = False
        self._clock = clock
        self._settings = settings or WatchSettings()
        self._draw = draw
        self._log = _log.bind(watch=name)
        self._contact = clock.monotonic()

    @property
    def age(self) -> float:
        """Return the seconds since the server last responded, or since the watcher was created."""
        return self._clock.monotonic() - self._contact

    @property
    def unreachable(self) -> bool:
        """Return whether the server did not respond to the last attempt to list or watch."""
        return self._outage

    async def run(self, deliver: Callable[[Event[T]], None]) -> NoReturn:
        """Deliver events until cancelled. An exception from `deliver` or a bug in a source ends the loop."""
        state: State = Listing()
        while True:
            match state:
                case Listing():
                    state = self._advance(state, await self._list(state), deliver)
                case Streaming():
                    state = await self._stream(state, deliver)
                case Waiting():
                    await self._wait(state)
                    state = self._advance(state, Waited(), deliver)
                case _:
                    assert_never(state)

    async def _list(self, state: Listing) -> Signal[T]:
        limit = self._settings.page_size if state.expiries < _WHOLE_LIST_AFTER else 0
        try:
            async with Deadline(self._clock, self._settings.request_timeout):
                page = await self._source.list_page(
                    limit=limit, continue_token=state.continue_token, resource_version=""
                )
        except (ApiError, OSError) as error:  # TimeoutError is an OSError
            return _failure(error)
        self._note_response()
        return page

    async def _stream(self, state: Streaming, deliver: Callable[[Event[T]], None]) -> State:
        """Follow the stream until it ends or fails, and return the state afterwards."""
        now: State = state
        opened = self._clock.monotonic()
        seconds = int(self._settings.stream_seconds * (1 + self._draw()))
        frames = self._source.watch(
            resource_version=state.resource_version, timeout_seconds=seconds, allow_bookmarks=True
        )
        try:
            async with Deadline(self._clock, self._settings.inactivity) as deadline, frames as stream:
                self._note_response()
                async for raw in stream:
                    self._contact = self._clock.monotonic()
                    deadline.move(self._settings.inactivity)
                    now = self._advance(now, read_frame(raw, self._source.decode), deliver)
                    if not isinstance(now, Streaming):
                        return now
            signal: Signal[T] = Ended(self._clock.monotonic() - opened)
        except (ApiError, OSError) as error:
            if not isinstance(now, Streaming):  # the state is already decided; only closing the stream failed
                return now
            silent = isinstance(error, TimeoutError)
            signal = Ended(self._clock.monotonic() - opened) if silent else _failure(error)
        return self._advance(now, signal, deliver)

    def _advance(self, state: State, signal: Signal[T], deliver: Callable[[Event[T]], None]) -> State:
        events, after = step(state, signal)
        for event in events:
            deliver(event)
        if not isinstance(after, Streaming) and not isinstance(signal, Page | Waited):
            self._log.warning("watch interrupted", signal=_name(signal), next=_describe(after))
        return after

    async def _wait(self, state: Waiting) -> None:
        outage = state.then.outage
        attempts = state.then.failures if outage is None else outage.attempts
        delay = self._settings.backoff.retry_delay(attempts, self._draw, state.retry_after)
        if outage is None:
            await self._clock.sleep(delay)
            return
        if outage.responds and self._outage:
            self._recovery.server_starting()
        self._outage = True
        if await self._recovery.wait(self._clock, delay, at_least=state.retry_after, silent=not outage.responds):
            await self._clock.sleep(self._settings.spread * self._draw())

    def _note_response(self) -> None:
        """Note that the server responded; if it did not before, notify the other watches."""
        self._contact = self._clock.monotonic()
        if self._outage:
            self._outage = False
            self._recovery.server_recovered()


def _failure(error: Exception) -> Refused | Disconnected | Unreadable:
    match error:
        case BadResponse():
            return Unreadable("a response that is not what the API promises")
        case ApiError(code=code) if code:
            return Refused(code, type(error).__name__, error.retry_after or 0.0)
        case _:
            return Disconnected(type(error).__name__)


def _name(signal: Any) -> str:
    match signal:
        case Refused(code=code, reason=reason):
            return f"refused with {code} {reason}"
        case Unreadable(why=why) | Disconnected(why=why):
            return why
        case _:
            return type(signal).__name__


def _describe(state: Any) -> str:
    return f"back off, then {_describe(state.then)}" if isinstance(state, Waiting) else type(state).__name__
