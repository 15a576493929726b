"""Floating-point numbers as Go's strconv writes them."""

from __future__ import annotations

import math
import struct


def format_float(value: float, verb: str = "g", precision: int = -1) -> str:
    """Do as strconv.FormatFloat(value, verb, precision, 64) for b, e, E, f, F, g, G, x, X.

    A precision of -1 means the shortest digits.
    """
    if precision < 0 and verb == "g" and 1 <= abs(value) < 1e6:
        return repr(value).removesuffix(".0")
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if verb in "xX":
        return _hexadecimal(value, verb, precision)
    if verb == "b":
        return _binary(value)
    if precision < 0:
        return _shortest(value, verb)
    match verb:
        case "f" | "F":
            return f"{value:.{precision}f}"
        case "e" | "E":
            return f"{value:.{precision}{verb}}"
        case _:
            return _general(value, verb, precision)


def _parts(value: float) -> tuple[str, int, int]:
    """Return sign, mantissa of 53 bits (fewer if subnormal), and the power of two it is multiplied with."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return sign, 0, -1074
    fraction, power = math.frexp(abs(value))
    shift = max(-1074 - (power - 53), 0)
    return sign, int(fraction * 2**53) >> shift, power - 53 + shift


def _binary(value: float) -> str:
    sign, mantissa, power = _parts(value)
    return f"{sign}{mantissa}p{power:+d}"


def _hexadecimal(value: float, verb: str, precision: int) -> str:
    sign, mantissa, power = _parts(value)
    power = power + mantissa.bit_length() - 1 if mantissa else 0
    bits = mantissa << (53 - mantissa.bit_length()) if mantissa else 0
    if 0 <= precision < 13:
        drop = 52 - 4 * precision
        half, rest = 1 << (drop - 1), bits & ((1 << drop) - 1)
        bits >>= drop
        bits += rest > half or (rest == half and bits & 1)
        bits <<= drop
        if bits >> 53:
            bits, power = bits >> 1, power + 1
    digits = f"{bits & (2**52 - 1):013x}"
    digits = digits.rstrip("0") if precision < 0 else digits[:precision].ljust(precision, "0")
    text = f"{sign}0x{bits >> 52}{'.' if digits else ''}{digits}p{'-' if power < 0 else '+'}{abs(power):02d}"
    return text.upper() if verb == "X" else text


def _general(value: float, verb: str, precision: int) -> str:
    precision = precision or 1
    digits = f"{value:.{precision - 1}e}"
    exponent = int(digits.rsplit("e", 1)[1])
    if exponent < -4 or exponent >= precision:
        mantissa, tail = digits.rsplit("e", 1)
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{tail}"
        return text.upper() if verb == "G" else text
    text = f"{value:.{max(precision - 1 - exponent, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortest_digits(value: float) -> tuple[str, str, int]:
    """Return sign, significant digits without trailing zeros, and the decimal exponent of the first one."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return sign, "0", 0
    text = repr(abs(value))
    mantissa, _, tail = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    exponent = int(tail or 0) + (len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1))
    return sign, digits.rstrip("0") or "0", exponent


def _shortest(value: float, verb: str) -> str:
    sign, digits, exponent = shortest_digits(value)
    if verb in "fF" or (verb in "gG" and -4 <= exponent < 6):
        return sign + plain(digits, exponent)
    mark = "E" if verb in "EG" else "e"
    tail = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}{mark}{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def plain(digits: str, exponent: int) -> str:
    """Write digits with a decimal point and no exponent."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]


def format_float32(value: float) -> str:
    """Do as strconv.FormatFloat(value, 'g', -1, 32): return the shortest digits that give the same float32."""
    if not math.isfinite(value):
        return format_float(value)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return "+Inf" if value > 0 else "-Inf"
    for precision in range(1, 10):
        text = f"{single:.{precision - 1}e}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == single:
            return _shortest(float(text), "g")
    return _shortest(single, "g")


def format_json(value: float) -> str:
    """Format like encoding/json: exponent form only below 1e-6 and from 1e21, without a padded exponent."""
    sign, digits, exponent = shortest_digits(value)
    if value == 0 or -7 < exponent < 21:
        return sign + plain(digits, exponent)
    tail = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}".replace("e-0", "e-")
