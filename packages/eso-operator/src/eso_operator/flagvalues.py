"""The values of flags, also of the dashboard's. Each parser returns the value or raises `argparse.ArgumentTypeError`.

Values that the existing operator accepts are accepted here with the same meaning.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from eso_operator.settings import DEFAULT_GATES, FeatureGate
from eso_operator.stores.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, LogLevel, TimeEncoding
from kubebase import durations

T = TypeVar("T")

MAX_FACTOR: Final = 1000
MAX_SHARDS: Final = 64
NOWHERE: Final = Listener("", -1)
METRICS: Final = Listener("", 8080)


def add_switch(flags: argparse.ArgumentParser, name: str, text: str, *, default: str) -> None:
    """Add a flag that is given as `--name`, `--name=true` or `--name=false`."""
    flags.add_argument(f"--{name}", nargs="?", const="true", default=default, type=truth, help=text)


def add_duration(flags: argparse.ArgumentParser, name: str, default: str, text: str) -> None:
    flags.add_argument(f"--{name}", type=seconds, default=default, metavar="DURATION", help=text)


_TRUTHS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def truth(text: str) -> bool:
    if text not in _TRUTHS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTHS[text]


def seconds(text: str) -> float:
    try:
        parsed = durations.parse(text) / durations.SECOND
    except durations.DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if parsed < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return parsed


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def workers(text: str) -> int:
    """Parse `--concurrent`: a number below 1 means 1."""
    try:
        return max(int(text), 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def shards(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_SHARDS}")
    return int(text)


def factor(text: str) -> float:
    try:
        parsed = float(text)
    except ValueError:
        parsed = 0.0
    if not 1 <= parsed <= MAX_FACTOR:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_FACTOR}")
    return parsed


# --- addresses --------------------------------------------------------------------------------------------------------


def listener(text: str) -> Listener:
    """Parse `host:port`, `:port` for every address, or `0` for none."""
    if text == "0":
        return NOWHERE
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port or :port")
    return Listener(host.strip("[]"), int(port))


def probes(text: str) -> Listener:
    """Parse `--live-addr`: an empty text means none, like `0`."""
    return listener(text) if text else NOWHERE


def metrics(text: str) -> Listener:
    """Parse `--metrics-addr`: an empty text means the default."""
    return listener(text) if text else METRICS


def trusted(text: str) -> tuple[ServiceKey, str]:
    service, address = _assigned(text, "NAMESPACE/SERVICE=HOST:PORT")
    parsed = listener(address)
    if not parsed.host or parsed.disabled:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/SERVICE=HOST:PORT")
    return service, address


def client_folder(text: str) -> tuple[ServiceKey, Path]:
    service, folder = _assigned(text, "NAMESPACE/SERVICE=FOLDER")
    return service, Path(folder)


def _assigned(text: str, shape: str) -> tuple[ServiceKey, str]:
    service, _, value = text.partition("=")
    namespace, _, name = service.partition("/")
    if not namespace or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not {shape}")
    return ServiceKey(namespace, name), value


# --- names ------------------------------------------------------------------------------------------------------------


def choice(names: type[T]) -> Callable[[str], T]:
    def chosen(text: str) -> T:
        try:
            return names(text)  # type: ignore[call-arg]  # an enumeration is called with a value
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {listed(names)}") from None

    return chosen


def listed(names: type[T]) -> str:
    return ", ".join(str(name) for name in names)  # type: ignore[attr-defined]  # an enumeration lists its members


def level(text: str) -> LogLevel:
    """Parse `--loglevel` in upper or lower case; an empty text means `info`."""
    known = {each.value: each for each in LogLevel} | {"warning": LogLevel.WARN, "": LogLevel.INFO}
    if (found := known.get(text.lower())) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {listed(LogLevel)}")
    return found


def time_encoding(text: str) -> TimeEncoding | None:
    """Return the encoding of a value of `--zap-time-encoding`; None for an unknown one."""
    known = {each.value: each for each in TimeEncoding} | {"nanos": TimeEncoding.NANO}
    return known.get(text.lower())


def gates(text: str) -> frozenset[FeatureGate]:
    """Return the gates that are on after these changes of the defaults."""
    on = set(DEFAULT_GATES)
    for entry in filter(None, text.split(",")):
        name, _, value = entry.partition("=")
        gate = choice(FeatureGate)(name.strip())
        if truth(value.strip() or "true"):
            on.add(gate)
        else:
            on.discard(gate)
    return frozenset(on)
