"""X.509 certificates: the few fields that templates need, read directly from DER.

This module does not verify a certificate: no signature, date or purpose is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address

from gotmpl import der
from gotmpl.der import DerError, Element

_AUTHORITY_KEY, _SUBJECT_KEY, _ALTERNATIVE_NAMES = "2.5.29.35", "2.5.29.14", "2.5.29.17"
_STANDARD = {
    "2.5.4.6": "C",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
}
"""In the order in which Go adds them before it reverses the whole name."""


class CertificateError(ValueError):
    """Why bytes are not a certificate, in Go's words; it never contains any of them."""


@dataclass(frozen=True, slots=True)
class Certificate:
    raw: bytes
    subject: str
    """RFC 2253 style, as Go prints it."""
    authority_key: bytes | None = None
    subject_key: bytes | None = None
    names: list[str] = field(default_factory=list)
    """Alternative names: DNS, then IP addresses, e-mail addresses and URIs."""


def parse(raw: bytes) -> Certificate:
    """Parse exactly one certificate."""
    outer = _element(raw, "x509: malformed certificate")
    if len(outer.raw) != len(raw):
        raise CertificateError("x509: trailing data")
    body = _element(outer.content, "x509: malformed tbs certificate")
    parts = _parts(body.content)
    if parts and parts[0].tag == 0xA0:
        parts = parts[1:]
    if not parts or parts[0].tag != der.INTEGER:
        raise CertificateError("x509: malformed serial number")
    problems = ("signature algorithm identifier", "issuer", "validity", "issuer", "spki")
    for problem, part in zip(problems, [*parts[1:6], *[None] * 5], strict=False):
        if part is None or part.tag != der.SEQUENCE:
            raise CertificateError(f"x509: malformed {problem}")
    try:
        extensions = _extensions(parts[6:])
        return Certificate(
            raw,
            _subject(parts[4]),
            _authority_key(extensions.get(_AUTHORITY_KEY)),
            _subject_key(extensions.get(_SUBJECT_KEY)),
            _names(extensions.get(_ALTERNATIVE_NAMES)),
        )
    except (DerError, IndexError):
        raise CertificateError("x509: malformed extension") from None


def _element(data: bytes, problem: str) -> Element:
    try:
        element = der.first(data)
    except DerError:
        raise CertificateError(problem) from None
    if element.tag != der.SEQUENCE:
        raise CertificateError(problem)
    return element


def _parts(data: bytes) -> list[Element]:
    try:
        return der.elements(data)
    except DerError:
        raise CertificateError("x509: malformed tbs certificate") from None


def _extensions(parts: list[Element]) -> dict[str, bytes]:
    wrapped = next((part for part in parts if part.tag == 0xA3), None)
    if wrapped is None:
        return {}
    out: dict[str, bytes] = {}
    for extension in der.first(wrapped.content).children():
        fields = extension.children()
        out[der.oid(fields[0])] = fields[-1].content
    return out


def _authority_key(extension: bytes | None) -> bytes | None:
    if extension is None:
        return None
    return next((part.content for part in der.first(extension).children() if part.tag == 0x80), None)


def _subject_key(extension: bytes | None) -> bytes | None:
    return None if extension is None else der.first(extension).content


def _names(extension: bytes | None) -> list[str]:
    if extension is None:
        return []
    parts = der.first(extension).children()
    out: list[str] = []
    for tag in (0x82, 0x87, 0x81, 0x86):
        out += [_name(part) for part in parts if part.tag == tag]
    return out


def _name(part: Element) -> str:
    if part.tag != 0x87:
        return part.content.decode("ascii", "surrogateescape")
    if len(part.content) not in {4, 16}:
        raise DerError("x509: cannot parse IP address")
    address = ip_address(part.content)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _subject(name: Element) -> str:
    """Format the subject: standard attributes grouped by kind, then others; the last one first."""
    known: dict[str, list[str]] = {}
    others: list[str] = []
    for group in name.children():
        for attribute in group.children():
            kind, value = attribute.children()[:2]
            label = _STANDARD.get(der.oid(kind))
            if label is None:
                others.append(f"{der.oid(kind)}=#{value.raw.hex()}")
            elif label in {"CN", "SERIALNUMBER"}:
                known[label] = [_escaped(_text(value))]
            else:
                known.setdefault(label, []).append(_escaped(_text(value)))
    groups = ["+".join(f"{label}={value}" for value in known[label]) for label in _STANDARD.values() if label in known]
    return ",".join(reversed([*others, *groups]))


def _text(value: Element) -> str:
    if value.tag == der.BMP_STRING:
        return value.content.decode("utf-16-be", "replace")
    return value.content.decode("utf-8", "replace")


def _escaped(text: str) -> str:
    out = [f"\\{char}" if char in ',+"\\<>;' else char for char in text]
    if out and out[0] in {" ", "#"}:
        out[0] = "\\" + out[0]
    if len(out) > 1 and out[-1] == " ":
        out[-1] = "\\ "
    return "".join(out)
