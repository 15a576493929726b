"""The fault file format: its rules, and the reserved keys.

    rules:
    - method: get
      key: db/*
      nth: 2
      fault: {type: error, reason: RATE_LIMITED, retryAfter: 3}

Reading only; `faults.py` decides when a rule strikes and carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from eso_wire.errors import ErrorReason, RetryClass
from eso_wire.versions import ProtocolVersion
from kubebase.yamlvalues import Rules, YamlError, read_one

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
