"""Serialise jobs and answers between a process and its workers. The bytes go only through their pipe.

A worker processes tenants' templates, so its answers are not trusted: they may contain only values, made of plain data.
Jobs may contain anything, because the parent controls its workers.
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
    """Serialise the value. The bytes may contain secrets: they go into the pipe and nowhere else."""
    into = io.BytesIO()
    _Pickler(into, protocol=5).dump(value)
    return into.getvalue()


def unpacked(raw: bytes) -> Any:
    """Deserialise a message of our own parent."""
    return pickle.loads(raw)  # noqa: S301 - the parent may tell its worker anything


def unpacked_values(raw: bytes) -> Any:
    """Deserialise a worker's message that contains only values; else raise pickle.UnpicklingError."""
    return _Values(io.BytesIO(raw)).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, SecretBytes):
            return SecretBytes, (value.reveal(),)
        if isinstance(value, Exception):
            # The exception's state is copied, because its constructor arguments are unknown.
            return _problem, (type(value), value.args, dict(vars(value)))
        return NotImplemented


class _Values(pickle.Unpickler):
    """Accepts only data classes of modules that are already loaded, and nothing that could execute code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _problem.__name__):
            return _problem
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and _is_data(found):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not a value")


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
