"""The dates of a certificate in PEM, read without cryptography, which takes 11 MB of each process that loads it.

Python's `ssl` checks certificates but does not tell their dates. This reads only the beginning of the certificate:

    Certificate { TBSCertificate { [0] version (optional), serialNumber, signature, issuer, validity { from, to } …

It checks nothing else. The TLS library has read the certificate before, and peers judge it.
"""

from __future__ import annotations

import binascii
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(rb"-----BEGIN ((?:X509 )?CERTIFICATE)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FIRST_YEAR_OF_UTC_TIME: Final = 1950


class Validity(NamedTuple):
    """The first and the last moment of validity."""

    not_before: datetime
    not_after: datetime


def validity_of(pem: bytes) -> Validity:
    """Return the dates of the first certificate. Raises ValueError if there is none, or it is malformed."""
    found = _BLOCK.search(pem)
    if found is None:
        raise ValueError("the text contains no certificate in PEM")
    try:
        signed = _element(binascii.a2b_base64(found[2]), 0, _SEQUENCE).content
        fields = _element(signed, 0, _SEQUENCE).content
        version = fields[:1] == bytes([_VERSION])
        at = 0
        for _ in range(4 if version else 3):
            at = _element(fields, at).end
        dates = _element(fields, at, _SEQUENCE).content
        first = _element(dates, 0)
        return Validity(_moment(first), _moment(_element(dates, first.end)))
    except (IndexError, binascii.Error) as error:
        raise ValueError("the certificate is malformed") from error


class _Element(NamedTuple):
    """An element of DER: `end` is where the next one begins."""

    tag: int
    content: bytes
    end: int


def _element(der: bytes, at: int, tag: int | None = None) -> _Element:
    """Return the element at this place. Raises ValueError if it is incomplete or has another tag, and IndexError."""
    if tag is not None and der[at] != tag:
        raise ValueError("the certificate is malformed")
    size, begin = der[at + 1], at + 2
    if size >= 0x80:  # the length has this many bytes of its own
        digits = size - 0x80
        size, begin = int.from_bytes(der[begin : begin + digits], "big"), begin + digits
    if begin + size > len(der):
        raise ValueError("the certificate is malformed")
    return _Element(der[at], der[begin : begin + size], begin + size)


def _moment(element: _Element) -> datetime:
    digits = element.content.decode("ascii").removesuffix("Z")
    if element.tag == _UTC_TIME and len(digits) == len("YYMMDDHHMMSS"):
        century = 19 if int(digits[:2]) >= _FIRST_YEAR_OF_UTC_TIME % 100 else 20
        digits = f"{century}{digits}"
    elif element.tag != _GENERALIZED_TIME or len(digits) != len("YYYYMMDDHHMMSS"):
        raise ValueError("the certificate has malformed dates")
    year, rest = int(digits[:4]), [int(digits[at : at + 2]) for at in range(4, 14, 2)]
    return datetime(year, rest[0], rest[1], rest[2], rest[3], rest[4], tzinfo=UTC)
