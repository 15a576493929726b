"""Kubernetes quantities, semantic versions and named formats."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import total_ordering
from typing import Any, Final

from localkube.schema import formats, names
from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, checked_int, function, method, plain
from localkube.schema.cel.types import BOOL, DOUBLE, FORMAT, INT, QUANTITY, SEMVER, STRING, list_of, optional_of
from localkube.schema.cel.values import MISSING, Optional, no_overload

_SUFFIXES: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix: Decimal(10) ** (-3 * power) for power, suffix in enumerate("mun", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_QUANTITY: Final = re.compile(
    r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][-+]?[0-9]{1,3})|(m|u|n|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)"
)
_NUMBER: Final = "(0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    amount: Decimal

    def cel_text(self) -> str:
        return format(self.amount.normalize(), "f")


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    release: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: Semver) -> bool:
        return self._rank() < other._rank()

    def _rank(self) -> tuple[Any, ...]:
        # Numbers order before words, and a version without pre-release after those with one.
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.release, not self.pre, parts


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    wrong: Callable[[str], list[str]]


def _parse_quantity(text: str) -> Decimal | None:
    matched = _QUANTITY.fullmatch(text) if len(text) < 100 else None
    if matched is None:
        return None
    scale = Decimal(10) ** int(matched[2][1:]) if matched[2] else _SUFFIXES[matched[3] or ""]
    return Decimal(matched[1]) * scale


def _quantity(text: str) -> Quantity:
    amount = _parse_quantity(text)
    if amount is None:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return Quantity(amount)


def _plus(sign: int) -> Callable[[Quantity, Any], Quantity]:
    def run(quantity: Quantity, other: Any) -> Quantity:
        amount = other.amount if isinstance(other, Quantity) else Decimal(other)
        return Quantity(quantity.amount + sign * amount)

    return run


def _is_integer(quantity: Quantity) -> bool:
    return quantity.amount == quantity.amount.to_integral_value() and abs(quantity.amount) < 2**63


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvaluationError("cannot convert value to integer")
    return checked_int(int(quantity.amount))


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _parse_semver(text: str, normalize: Any = False) -> Semver | None:  # noqa: FBT002 - the signature CEL users call
    matched = _SEMVER.fullmatch(_normal(text) if normalize else text)
    if matched is None:
        return None
    return Semver(
        (int(matched[1]), int(matched[2]), int(matched[3])), tuple((matched[4] or "").split(".")) if matched[4] else ()
    )


def _normal(text: str) -> str:
    """A lenient version: a leading v, missing parts and leading zeros are accepted."""
    core, mark, tail = text.removeprefix("v").partition("-")
    parts = [part.lstrip("0") or "0" for part in core.split(".")]
    return ".".join([*parts, "0", "0"][: max(3, len(parts))]) + mark + tail


def _semver(text: str, normalize: Any = False) -> Semver:  # noqa: FBT002 - the signature CEL users call
    found = _parse_semver(text, normalize)
    if found is None:
        raise EvaluationError("no Major.Minor.Patch elements found")
    return found


def _less(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        raise no_overload("isLessThan", left, right)
    return bool(left < right)


def _from_check(name: str, message: str) -> NamedFormat:
    check = formats.check_for(name)
    return NamedFormat(name, lambda text: [] if check is None or check(text) else [message])


_FORMATS: Final = {
    "dns1123Label": NamedFormat("dns1123Label", names.dns_label),
    "dns1123Subdomain": NamedFormat("dns1123Subdomain", names.dns_subdomain),
    "dns1035Label": NamedFormat("dns1035Label", names.dns1035_label),
    "dns1123LabelPrefix": NamedFormat("dns1123LabelPrefix", lambda text: names.dns_label(_unprefixed(text))),
    "dns1123SubdomainPrefix": NamedFormat(
        "dns1123SubdomainPrefix", lambda text: names.dns_subdomain(_unprefixed(text))
    ),
    "dns1035LabelPrefix": NamedFormat("dns1035LabelPrefix", lambda text: names.dns1035_label(_unprefixed(text))),
    "qualifiedName": NamedFormat("qualifiedName", names.qualified_name),
    "labelValue": NamedFormat("labelValue", names.label_value),
    "uri": _from_check("uri", "invalid URI"),
    "uuid": _from_check("uuid", "does not match the UUID format"),
    "byte": _from_check("byte", "invalid base64"),
    "date": _from_check("date", "invalid date"),
    "datetime": _from_check("datetime", "invalid datetime"),
}


def _unprefixed(text: str) -> str:
    return text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text


def _validate(named: NamedFormat, text: str) -> Optional:
    wrong = named.wrong(text)
    return Optional(wrong) if wrong else MISSING


def _named(name: str) -> Optional:
    return Optional(_FORMATS[name]) if name in _FORMATS else MISSING


def _constant(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


_BOTH: Final = (method(QUANTITY, QUANTITY, gives=BOOL), method(SEMVER, SEMVER, gives=BOOL))

FUNCTIONS: Final[Library] = {
    "quantity": function(_quantity, plain(STRING, gives=QUANTITY)),
    "isQuantity": function(lambda text: _parse_quantity(text) is not None, plain(STRING, gives=BOOL)),
    "sign": function(lambda quantity: _compare(quantity.amount, 0), plain(QUANTITY, gives=INT)),
    "isInteger": function(_is_integer, method(QUANTITY, gives=BOOL)),
    "asInteger": function(_as_integer, method(QUANTITY, gives=INT)),
    "asApproximateFloat": function(lambda quantity: float(quantity.amount), method(QUANTITY, gives=DOUBLE)),
    "add": function(_plus(1), method(QUANTITY, QUANTITY, gives=QUANTITY), method(QUANTITY, INT, gives=QUANTITY)),
    "sub": function(_plus(-1), method(QUANTITY, QUANTITY, gives=QUANTITY), method(QUANTITY, INT, gives=QUANTITY)),
    "isLessThan": function(_less, *_BOTH),
    "isGreaterThan": function(lambda left, right: _less(right, left), *_BOTH),
    "compareTo": function(_compare, method(QUANTITY, QUANTITY, gives=INT), method(SEMVER, SEMVER, gives=INT)),
    "semver": function(_semver, plain(STRING, gives=SEMVER), plain(STRING, BOOL, gives=SEMVER)),
    "isSemver": function(
        lambda text, normalize=False: _parse_semver(text, normalize) is not None,
        plain(STRING, gives=BOOL),
        plain(STRING, BOOL, gives=BOOL),
    ),
    "major": function(lambda version: version.release[0], method(SEMVER, gives=INT)),
    "minor": function(lambda version: version.release[1], method(SEMVER, gives=INT)),
    "patch": function(lambda version: version.release[2], method(SEMVER, gives=INT)),
    "format.named": function(_named, plain(STRING, gives=optional_of(FORMAT))),
    "validate": function(_validate, method(FORMAT, STRING, gives=optional_of(list_of(STRING)))),
    **{f"format.{name}": function(_constant(named), plain(gives=FORMAT)) for name, named in _FORMATS.items()},
}
