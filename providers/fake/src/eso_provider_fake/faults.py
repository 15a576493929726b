"""The rules of a fault script: when each applies, and its effect.

    faults.add(Rule(fault=Hang(), method="get", nth=2))

A test in the same process holds the `Faults` object; a provider process reads them from a file (`FaultFile`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NoReturn, assert_never

import structlog

from eso_provider_fake.script import (
    MAX_SCRIPT_BYTES,
    Error,
    Events,
    Exit,
    Fault,
    Hang,
    Latency,
    Method,
    Oversize,
    Rule,
    Script,
    ScriptError,
    Truncate,
    read,
    rule_of_key,
)
from eso_wire.errors import ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

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
