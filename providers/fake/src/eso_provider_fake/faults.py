"""The rules of a fault script: when each applies, and its effect.

    faults.add(Rule(fault=Hang(), method="get", nth=2))

A test in the same process holds the `Faults` object; a provider process reads them from a file (`FaultFile`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, assert_never

import msgspec
import structlog

from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.versions import ProtocolVersion
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.yamlvalues import Rules, YamlError, read_one

# --- The fault file format: its rules, and the reserved keys ---------------------------------------------------------
#
#     rules:
#     - method: get
#       key: db/*
#       nth: 2
#       fault: {type: error, reason: RATE_LIMITED, retryAfter: 3}
#
# Reading only; `faults.py` decides when a rule strikes and carries it out.


MAX_SCRIPT_BYTES: Final = 1024 * 1024
RESERVED: Final = "fault:"
"""Remote keys that begin so are faults themselves, unless the store has a value of that name."""

Method = Literal["*", "get", "find", "check", "push", "delete", "validate", "subscribe", "handshake"]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class ScriptError(ValueError):
    """An invalid fault file; the message names the line."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Rejects unknown fields: a fault that silently does nothing makes a test pass for the wrong reason."""


class Latency(_Part, frozen=True, tag="latency"):
    """Respond later; what comes after it still happens."""

    seconds: Seconds


class Error(_Part, frozen=True, tag="error"):
    """Fail with a reason of the protocol."""

    reason: ErrorReason
    message: str = "scripted fault"
    retry: RetryClass = RetryClass.UNSPECIFIED
    retry_after: Seconds = 0.0
    backend_code: str = ""


class Hang(_Part, frozen=True, tag="hang"):
    """Never respond; deadlines are the caller's and the server's."""


class Truncate(_Part, frozen=True, tag="truncate"):
    """End a find after this many keys, without its last page."""

    after: Annotated[int, msgspec.Meta(ge=0)] = 0


class Oversize(_Part, frozen=True, tag="oversize"):
    """Respond to a read with this many bytes."""

    size: Annotated[int, msgspec.Meta(ge=1, le=64 * 1024 * 1024)]


class Exit(_Part, frozen=True, tag="exit"):
    """End the process at once, as a crash does."""

    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1


class Events(_Part, frozen=True, tag="events"):
    """Send this many events to every subscription, as soon as it is open."""

    count: Count
    change: Literal["UPDATED", "DELETED", "RESYNC"] = "UPDATED"
    pause: Seconds = 0.0


Fault = Latency | Error | Hang | Truncate | Oversize | Exit | Events


class Rule(_Part, frozen=True):
    """A fault, the calls it is meant for, and which of them it strikes. Without a choice: all of them."""

    fault: Fault
    method: Method = "*"
    key: str = "*"
    """Pattern of remote keys, with `*` and `?`; of names in a find."""
    store: str = "*"
    """Pattern of store names."""
    level: Literal["item", "call"] = "item"
    """Whether one item fails or the call as a whole."""
    nth: Count | None = None
    """Apply to this match only."""
    every: Count | None = None
    """Apply to every n-th match."""
    first: Count | None = None
    """Apply to the first n matches only."""
    flap: tuple[Count, Count] | None = None
    """Let n matches pass, then apply to m, and repeat."""
    for_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Apply only for this many seconds after the rule was loaded."""

    def __post_init__(self) -> None:
        if self.level == "call" and self.key != "*":
            raise ValueError("a rule for calls has no key: a call has many")
        if self.level == "call" and isinstance(self.fault, Truncate | Oversize | Events):
            raise ValueError(f"{type(self.fault).__name__.lower()} is no fault of calls; leave out the level")


class Script(_Part, frozen=True):
    """A fault file. Protocols and limits count from the start of the process only, rules whenever the file changes."""

    rules: tuple[Rule, ...] = ()
    protocols: tuple[str, ...] = ()
    """Versions to offer instead of ours: ["2.0"] is an old provider, ["3.0"] none that we understand."""
    max_message_bytes: Annotated[int, msgspec.Meta(ge=0, le=128 * 1024 * 1024)] = 0
    """Largest message to send; more than clients take makes oversize responses reach them."""

    @property
    def versions(self) -> tuple[ProtocolVersion, ...]:
        return tuple(_version(text) for text in self.protocols)


def read(text: bytes) -> Script:
    """A fault file, YAML or JSON."""
    try:
        script = msgspec.convert(read_one(text, Rules(size=MAX_SCRIPT_BYTES)) or {}, Script)
        _ = script.versions
    except YamlError as exc:
        raise ScriptError(f"no YAML: {exc}") from exc
    except (msgspec.ValidationError, ValueError) as exc:
        raise ScriptError(str(exc)) from exc
    return script


def rule_of_key(key: str) -> Rule | None:
    """What a reserved key means; None when it is none, or means nothing.

    fault:error:REASON[:retry after]   fault:latency:SECONDS   fault:hang   fault:oversize:BYTES   fault:flap:GOOD:BAD
    """
    if not key.startswith(RESERVED):
        return None
    described = _described(key.removeprefix(RESERVED).split(":"))
    if described is None:
        return None
    try:
        return msgspec.convert(described, Rule, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None


def _described(parts: list[str]) -> Mapping[str, Any] | None:
    match parts:
        case ["error", reason]:
            return {"fault": {"type": "error", "reason": reason}}
        case ["error", reason, retry_after]:
            return {"fault": {"type": "error", "reason": reason, "retryAfter": retry_after}}
        case ["latency", seconds]:
            return {"fault": {"type": "latency", "seconds": seconds}}
        case ["hang"]:
            return {"fault": {"type": "hang"}}
        case ["oversize", size]:
            return {"fault": {"type": "oversize", "size": size}}
        case ["flap", good, bad]:
            return {"fault": {"type": "error", "reason": "BACKEND_UNAVAILABLE"}, "flap": [good, bad]}
        case _:
            return None


def _version(text: str) -> ProtocolVersion:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()) or len(text) > 9:
        raise ValueError(f'"{text}" is no protocol version; write it as "2.1"')
    return ProtocolVersion(int(major), int(minor))


# --- The rules of a fault script -------------------------------------------------------------------------------------


MAX_RULES: Final = 1000
MAX_RESERVED_KEYS: Final = 1000

Effect = Truncate | Oversize | Events
"""The effects that only the store itself can carry out."""

_log = structlog.get_logger("eso_provider_fake.faults")


@dataclass(frozen=True, slots=True)
class Point:
    """One point at which a rule may apply."""

    method: Method
    store: str
    key: str = ""
    level: Literal["item", "call"] = "item"
    has_value: bool = False
    """The store has a value under the key, so the key is not a reserved one."""


class _Armed:
    """A rule and its number of matches."""

    __slots__ = ("count", "rule", "since")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.count = 0
        self.since: float | None = None

    def strikes(self, now: float) -> bool:
        """Count one match; return whether the rule applies to it."""
        self.count += 1
        self.since = now if self.since is None else self.since
        rule, count = self.rule, self.count
        refusals = (
            rule.nth is not None and count != rule.nth,
            rule.every is not None and count % rule.every != 0,
            rule.first is not None and count > rule.first,
            rule.flap is not None and (count - 1) % sum(rule.flap) < rule.flap[0],
            rule.for_seconds is not None and now - self.since > rule.for_seconds,
        )
        return not any(refusals)


class Faults:
    """The rules in force."""

    def __init__(self, rules: Iterable[Rule] = (), *, leave: Callable[[int], NoReturn] = os._exit) -> None:
        self._leave = leave
        self._armed: list[_Armed] = []
        self._reserved: BoundedDict[tuple[str, str], _Armed] = BoundedDict(MAX_RESERVED_KEYS)
        self.replace(rules)

    def add(self, rule: Rule) -> None:
        """Add a rule after the others."""
        if len(self._armed) >= MAX_RULES:
            raise ScriptError(f"more than {MAX_RULES} rules")
        self._armed.append(_Armed(rule))

    def replace(self, rules: Iterable[Rule]) -> None:
        """Replace all rules; counts start at zero."""
        self._armed = []
        for rule in rules:
            self.add(rule)

    def clear(self) -> None:
        self.replace(())

    async def strike(self, point: Point, clock: Clock) -> tuple[Effect, ...]:
        """Carry out the rules for a point: raise an error, or return the faults that only a store can carry out."""
        effects: list[Effect] = []
        for fault in self._due(point, clock.monotonic()):
            match fault:
                case Latency():
                    await clock.sleep(fault.seconds)
                case Hang():
                    await asyncio.Event().wait()
                case Exit():
                    self._leave(fault.code)
                case Error():
                    raise ProviderError(
                        fault.reason,
                        fault.message,
                        retry=fault.retry,
                        retry_after=fault.retry_after,
                        backend_code=fault.backend_code,
                    )
                case Truncate() | Oversize() | Events():
                    effects.append(fault)
                case _ as never:
                    assert_never(never)
        return tuple(effects)

    def _due(self, point: Point, now: float) -> list[Fault]:
        """Return the rules that apply now. Every rule that matches the point counts it, whether it applies or not."""
        meant = [armed for armed in self._armed if _means(armed.rule, point)]
        if (reserved := self._reserved_rule(point)) is not None:
            meant.append(reserved)
        return [armed.rule.fault for armed in meant if armed.strikes(now)]

    def _reserved_rule(self, point: Point) -> _Armed | None:
        if point.level == "call" or point.has_value or (rule := rule_of_key(point.key)) is None:
            return None
        target = (point.store, point.key)
        self._reserved[target] = armed = self._reserved.get(target) or _Armed(rule)
        return armed


class FaultFile:
    """Rules from a file that is read again whenever it changes."""

    def __init__(self, path: Path, faults: Faults) -> None:
        self._path = path
        self._faults = faults
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> Script:
        """Read the file. Raises `ScriptError` if it is invalid."""
        self._seen = self._signature()
        try:
            with self._path.open("rb") as file:
                script = read(file.read(MAX_SCRIPT_BYTES + 1))
        except OSError as exc:
            raise ScriptError(f"cannot be read: {exc.strerror}") from exc
        self._faults.replace(script.rules)
        return script

    def refresh(self) -> None:
        """Read the file again if it changed. If it is invalid, log the error and use the former rules."""
        if self._signature() == self._seen:
            return
        try:
            script = self.load()
        except ScriptError as exc:
            _log.warning("fault file not used", file=str(self._path), problem=str(exc))
        else:
            _log.info("fault file read", file=str(self._path), rules=len(script.rules))

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _means(rule: Rule, point: Point) -> bool:
    return (
        rule.level == point.level
        and rule.method in ("*", point.method)
        and fnmatchcase(point.store, rule.store)
        and (point.level == "call" or fnmatchcase(point.key, rule.key))
    )
