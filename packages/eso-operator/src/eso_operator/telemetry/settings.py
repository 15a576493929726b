"""The settings of logs and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class LogLevel(StrEnum):
    """The levels of `--loglevel`. The last three mean the same as `error`, the highest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    DPANIC = "dpanic"
    PANIC = "panic"
    FATAL = "fatal"


class TimeEncoding(StrEnum):
    """The time encodings of log lines, under the names of `--zap-time-encoding`."""

    EPOCH = "epoch"
    MILLIS = "millis"
    NANO = "nano"
    ISO8601 = "iso8601"
    RFC3339 = "rfc3339"
    RFC3339NANO = "rfc3339nano"


@dataclass(frozen=True, slots=True)
class Listener:
    """The address of a server; an empty host means every address of the machine."""

    host: str
    port: int

    @property
    def disabled(self) -> bool:
        """Return whether the server is off (`--metrics-addr 0`)."""
        return self.port < 0


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: LogLevel = LogLevel.INFO
    time: TimeEncoding = TimeEncoding.EPOCH


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    listen: Listener = field(default_factory=lambda: Listener("", 8080))
    secure: bool = False
    authenticated: bool = False
    certificate_folder: Path | None = None
    certificate_name: str = "tls.crt"
    key_name: str = "tls.key"
    extended_labels: bool = False
