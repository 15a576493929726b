"""Work and results as bytes, between a process and its workers. Over their pipe only: never files, never arguments.

The worker computes what tenants wrote, so what comes back is read with suspicion: only values may be in it, which are
made of data alone. The other way everything may travel: it is the parent that says what its worker does.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from enum import Enum
from typing import Any, Final

from eso_api.values import SecretBytes

_COLLECTIONS: Final = (set, frozenset, bytearray, complex)


def packed(value: object) -> bytes:
    """The value as bytes. Secret values are in it: it goes into the pipe and nowhere else."""
    into = io.BytesIO()
    _Pickler(into, protocol=5).dump(value)
    return into.getvalue()


def unpacked(raw: bytes) -> Any:
    """What our own parent sent."""
    return pickle.loads(raw)  # noqa: S301 - the parent may tell its worker anything


def unpacked_values(raw: bytes) -> Any:
    """What a worker sent, if it is nothing but values; else pickle.UnpicklingError."""
    return _Values(io.BytesIO(raw)).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, SecretBytes):
            return SecretBytes, (value.reveal(),)
        if isinstance(value, Exception):
            # As it is: making it anew would need the arguments it was made with, and exceptions do not keep those.
            return _problem, (type(value), value.args, dict(vars(value)))
        return NotImplemented


class _Values(pickle.Unpickler):
    """Knows classes of plain data of modules that are loaded here, and nothing that could do something."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _problem.__name__):
            return _problem
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and _is_data(found):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value")


def _is_data(kind: type) -> bool:
    return (
        kind is SecretBytes
        or kind in _COLLECTIONS
        or issubclass(kind, (Exception, Enum))
        or hasattr(kind, "__struct_fields__")
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or dataclasses.is_dataclass(kind)
    )


def _problem(kind: type[Exception], arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    problem = kind.__new__(kind, *arguments)
    problem.__dict__.update(state)
    return problem
