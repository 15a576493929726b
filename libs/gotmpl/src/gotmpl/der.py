"""The parts of DER that keys, certificates and keystores need: reading and writing elements.

As in Go, lengths must be minimal and definite.
"""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCE, SET, INTEGER, BIT_STRING, OCTET_STRING, NULL, OID, BMP_STRING = 0x30, 0x31, 0x02, 0x03, 0x04, 0x05, 0x06, 0x1E


class DerError(ValueError):
    """A DER error in Go's words; it never contains data."""


@dataclass(frozen=True, slots=True)
class Element:
    tag: int
    content: bytes
    raw: bytes

    def children(self) -> list[Element]:
        return elements(self.content)


def first(data: bytes, at: int = 0) -> Element:
    """Return the element that starts at `at`."""
    if at >= len(data):
        raise DerError("asn1: syntax error: sequence truncated")
    if data[at] & 0x1F == 0x1F or at + 1 >= len(data):
        raise DerError("asn1: syntax error: truncated tag or length")
    length, start = _length(data, at + 1)
    if start + length > len(data):
        raise DerError("asn1: syntax error: data truncated")
    return Element(data[at], data[start : start + length], data[at : start + length])


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length, and where the content starts."""
    short = data[at]
    if short < 0x80:
        return short, at + 1
    count = short & 0x7F
    if count == 0:
        raise DerError("asn1: syntax error: indefinite length found (not DER)")
    digits = data[at + 1 : at + 1 + count]
    if len(digits) < count:
        raise DerError("asn1: syntax error: truncated tag or length")
    if digits[0] == 0:
        raise DerError("asn1: structure error: superfluous leading zeros in length")
    length = int.from_bytes(digits, "big")
    if count > 4 or length >= 1 << 31:
        raise DerError("asn1: structure error: length too large")
    if length < 0x80:
        raise DerError("asn1: structure error: non-minimal length")
    return length, at + 1 + count


def elements(data: bytes) -> list[Element]:
    out: list[Element] = []
    at = 0
    while at < len(data):
        element = first(data, at)
        out.append(element)
        at += len(element.raw)
    return out


def expect(data: bytes, tag: int) -> Element:
    """Return the only element of the data, which must have that tag."""
    if len(data) > 1 and data[0] != tag:
        raise DerError("asn1: structure error: tags don't match")
    element = first(data)
    if len(element.raw) != len(data):
        raise DerError("pkcs12: trailing data found")
    return element


def integer(element: Element) -> int:
    return int.from_bytes(element.content, "big", signed=True)


def oid(element: Element) -> str:
    """Return the dotted form of an object identifier."""
    arcs: list[int] = []
    value = 0
    for byte in element.content:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(value)
            value = 0
    if not arcs:
        raise DerError("asn1: syntax error: zero length OBJECT IDENTIFIER")
    head = min(arcs[0] // 40, 2)
    return ".".join(map(str, [head, arcs[0] - 40 * head, *arcs[1:]]))


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + content


def sequence(*parts: bytes) -> bytes:
    return element(SEQUENCE, b"".join(parts))


def set_of(*parts: bytes) -> bytes:
    return element(SET, b"".join(parts))


def number(value: int) -> bytes:
    return element(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def octets(content: bytes) -> bytes:
    return element(OCTET_STRING, content)


def identifier(dotted: str) -> bytes:
    head, second, *rest = map(int, dotted.split("."))
    return element(OID, b"".join(map(_base128, [40 * head + second, *rest])))


def _base128(value: int) -> bytes:
    out = [value & 0x7F]
    while value := value >> 7:
        out.append(value & 0x7F | 0x80)
    return bytes(reversed(out))
