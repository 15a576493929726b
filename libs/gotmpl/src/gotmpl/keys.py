"""Read and write private keys in DER, with Go's error messages.

`cryptography` is imported on use, so that templates without keys do not load it.
"""

from __future__ import annotations

from typing import Any

from gotmpl import pem
from gotmpl.der import SEQUENCE, DerError, first

PrivateKey = Any
"""A private key of `cryptography`."""


class KeyFormatError(ValueError):
    """Why bytes are not a private key; it never contains any of them."""


def from_pkcs8(der: bytes) -> PrivateKey:
    _refuse_other_forms(der, "PKCS8")
    return _loaded(der, "x509: failed to parse private key (PKCS#8)")


def from_pkcs1(der: bytes) -> PrivateKey:
    _refuse_other_forms(der, "PKCS1")
    return _loaded(der, "x509: failed to parse private key (PKCS#1)")


def from_sec1(der: bytes) -> PrivateKey:
    _refuse_other_forms(der, "EC")
    return _loaded(der, "x509: failed to parse EC private key")


def from_any(der: bytes) -> PrivateKey:
    """Read a key in PKCS#1, PKCS#8 or SEC 1, whichever fits."""
    try:
        return _loaded(der, "") if _form(der) else _refuse(DerError("no private key"))
    except ValueError:
        raise KeyFormatError("unable to parse private key type") from None


def _refuse(error: Exception) -> PrivateKey:
    raise error


def _form(der: bytes) -> str:
    """Return which of the three structures the bytes have; empty if none."""
    try:
        outer = first(der)
        parts = outer.children() if outer.tag == SEQUENCE and len(outer.raw) == len(der) else []
    except DerError:
        return ""
    tags = [part.tag for part in parts[:3]]
    if tags == [2, 0x30, 4]:
        return "PKCS8"
    if len(parts) >= 9 and tags[:2] == [2, 2]:
        return "PKCS1"
    return "EC" if tags[:2] == [2, 4] else ""


_HINTS = {
    "PKCS8": "x509: failed to parse private key (use ParsePKCS8PrivateKey instead for this key format)",
    "PKCS1": "x509: failed to parse private key (use ParsePKCS1PrivateKey instead for this key format)",
    "EC": "x509: failed to parse private key (use ParseECPrivateKey instead for this key format)",
}


def _refuse_other_forms(der: bytes, expected: str) -> None:
    found = _form(der)
    if found and found != expected:
        raise KeyFormatError(_HINTS[found])
    if not found:
        raise KeyFormatError("asn1: structure error: tags don't match")


def _loaded(der: bytes, problem: str) -> PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        key = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFormatError(problem) from None
    if not _is_consistent(key):
        raise KeyFormatError(problem)
    return key


def _is_consistent(key: PrivateKey) -> bool:
    """Run Go's checks of an RSA key, without the library's slow search for factors."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if not isinstance(key, RSAPrivateKey):
        return True
    numbers = key.private_numbers()
    product = numbers.d * numbers.public_numbers.e
    primes = (numbers.p, numbers.q)
    return numbers.p * numbers.q == numbers.public_numbers.n and all(product % (prime - 1) == 1 for prime in primes)


def from_pem(text: bytes) -> PrivateKey:
    """Read the key in the first block, according to the block's type."""
    block, _ = pem.decode(text)
    if block is None:
        raise KeyFormatError("no PEM data in input")
    if block.type == "PRIVATE KEY":
        return _explained("decoding PEM as PKCS#8", from_pkcs8, block.content)
    if not block.type.endswith(" PRIVATE KEY"):
        raise KeyFormatError(f"no private key data in PEM block of type {block.type}")
    match block.type.removesuffix(" PRIVATE KEY"):
        case "RSA":
            return _explained("parsing RSA private key from PEM", from_pkcs1, block.content)
        case "EC":
            return _explained("parsing EC private key from PEM", from_sec1, block.content)
        case "DSA":
            return _explained("parsing DSA private key from PEM", _from_dsa, block.content)
        case _:
            raise KeyFormatError(f"invalid private key type {block.type}")


def _explained(context: str, read: Any, content: bytes) -> PrivateKey:
    try:
        return read(content)
    except ValueError as exc:
        raise KeyFormatError(f"{context}: {exc}") from None


def _from_dsa(der: bytes) -> PrivateKey:
    return _loaded(der, "asn1: structure error: tags don't match")


def to_pkcs8(key: PrivateKey) -> bytes:
    return _written(key, "PKCS8")


def _written(key: PrivateKey, form: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    written: bytes = key.private_bytes(Encoding.DER, getattr(PrivateFormat, form), NoEncryption())
    return written


def to_pem(key: PrivateKey) -> str:
    """Write RSA, EC and DSA keys in their traditional forms, others as PKCS#8."""
    from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

    match key:
        case rsa.RSAPrivateKey():
            kind = "RSA PRIVATE KEY"
        case ec.EllipticCurvePrivateKey():
            kind = "EC PRIVATE KEY"
        case dsa.DSAPrivateKey():
            kind = "DSA PRIVATE KEY"
        case _:
            return pem.encoded("PRIVATE KEY", to_pkcs8(key))
    return pem.encoded(kind, _written(key, "TraditionalOpenSSL"))
