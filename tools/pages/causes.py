"""Every cause that a message or an outcome can contain: enumerations, errors of providers, and literals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import eso_operator
from eso_operator.certificates.problems import ProblemName
from eso_operator.controllers.externalsecret import status as of_external_secret
from eso_operator.providers.errors import NoResponseError, cause_of
from eso_operator.stores.resolved import Reason
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.probe import TlsProblemKind
from eso_wire.status import TransportError

_SOURCE: Final = Path(eso_operator.__file__).parent
_CAMEL: Final = re.compile(r"[A-Z][A-Za-z]+")


def causes() -> frozenset[str]:
    """Return all causes."""
    errors = [*(ProviderError(reason, "") for reason in ErrorReason), TransportError(""), NoResponseError("")]
    return frozenset(
        {
            *map(str, Reason),
            *map(str, ProblemName),
            *map(str, TlsProblemKind),
            *map(cause_of, errors),
            *of_external_secret.CAUSES,
            *literals("sources", "_failure"),
            *literals("controllers/pushsecret", "_failed", "Failure", "SourceError", "SourceGoneError"),
        }
    )


def literals(folder: str, *functions: str) -> Iterator[str]:
    """Yield the CamelCase words in calls of these functions."""
    for path in sorted((_SOURCE / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in functions:
                yield from filter(_CAMEL.fullmatch, _texts(node))


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _texts(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
