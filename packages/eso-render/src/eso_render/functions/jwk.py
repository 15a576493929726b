"""JSON Web Keys -> PEM."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from gotmpl import keys, pem
from gotmpl.errors import FuncError, Quoted
from gotmpl.jsontext import JsonError, decode_first, kind_of
from gotmpl.signatures import STRING, Functions
from gotmpl.values import Value, to_bytes

FUNCTIONS = Functions()


@FUNCTIONS.add("jwkPublicKeyPem", params=(STRING,), cost=20)
def jwk_public_key_pem(text: str) -> str:
    key, go_type = _key(text)
    if not hasattr(key, "public_bytes"):
        raise FuncError(f"x509: unsupported public key type: {go_type}")

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return pem.encoded("PUBLIC KEY", key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@FUNCTIONS.add("jwkPrivateKeyPem", params=(STRING,), cost=20)
def jwk_private_key_pem(text: str) -> str:
    key, go_type = _key(text)
    if not hasattr(key, "private_bytes"):
        raise FuncError(f"x509: unknown key type while marshaling PKCS#8: {go_type}")
    return pem.encoded("PRIVATE KEY", keys.to_pkcs8(key))


def _key(text: str) -> tuple[Any, str]:
    """The key of `cryptography`, and the name of its Go type."""
    try:
        fields = decode_first(text) if text.strip(" \t\r\n") else _refuse("EOF")
    except JsonError as exc:
        raise FuncError(f"failed to unmarshal JSON into key hint: {exc}") from None
    if not isinstance(fields, dict):
        raise FuncError(f"failed to unmarshal JSON into key hint: {_NOT_AN_OBJECT.format(kind_of(fields))}")
    kind = fields.get("kty", "")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise FuncError("invalid key type from JSON (", Quoted(kind), ")")
    try:
        return read(fields)
    except ValueError:
        raise FuncError("failed to build the key: its numbers do not make one") from None


_NOT_AN_OBJECT = (
    "json: cannot unmarshal {} into Go value of type "
    'struct {{ Kty string "json:\\"kty\\""; D jsontext.Value "json:\\"d\\"" }}'
)


def _refuse(reason: str) -> Value:
    raise JsonError(reason)


def _rsa(fields: dict[str, Value]) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = "d" in fields
    name = "rsaPrivateKey" if private else "rsaPublicKey"
    numbers = {field: _number(fields, field, name) for field in (("d", "p", "q", "n", "e") if private else ("n", "e"))}
    public = rsa.RSAPublicNumbers(numbers["e"], numbers["n"])
    if not private:
        return public.public_key(), "*rsa.PublicKey"
    p, q, d = numbers["p"], numbers["q"], numbers["d"]
    exponents = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    return rsa.RSAPrivateNumbers(p, q, d, *exponents, public).private_key(), "*rsa.PrivateKey"


def _ec(fields: dict[str, Value]) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric import ec

    private = "d" in fields
    name = "ecdsaPrivateKey" if private else "ecdsaPublicKey"
    curves: dict[Value, Callable[[], ec.EllipticCurve]] = {
        "P-256": ec.SECP256R1,
        "P-384": ec.SECP384R1,
        "P-521": ec.SECP521R1,
    }
    _required(fields, "crv", name)
    make = curves.get(fields["crv"]) if isinstance(fields["crv"], str) else None
    if make is None:
        raise FuncError("failed to build public key: curve algorithm ", Quoted(fields["crv"]), " not supported")
    x, y = _number(fields, "x", name), _number(fields, "y", name)
    public = ec.EllipticCurvePublicNumbers(x, y, make())
    if not private:
        return public.public_key(), "*ecdsa.PublicKey"
    return ec.EllipticCurvePrivateNumbers(_number(fields, "d", name), public).private_key(), "*ecdsa.PrivateKey"


def _okp(fields: dict[str, Value]) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

    private = "d" in fields
    name = "okpPrivateKey" if private else "okpPublicKey"
    _required(fields, "crv", name)
    public, secret = _octets(fields, "x", name), _octets(fields, "d", name) if private else b""
    match fields["crv"]:
        case "Ed25519" if private:
            return ed25519.Ed25519PrivateKey.from_private_bytes(secret), "ed25519.PrivateKey"
        case "Ed25519":
            return ed25519.Ed25519PublicKey.from_public_bytes(public), "ed25519.PublicKey"
        case "X25519" if private:
            return x25519.X25519PrivateKey.from_private_bytes(secret), "*ecdh.PrivateKey"
        case "X25519":
            return x25519.X25519PublicKey.from_public_bytes(public), "*ecdh.PublicKey"
        case _:
            raise FuncError("failed to build the key: curve ", Quoted(fields["crv"]), " not supported")


def _symmetric(fields: dict[str, Value]) -> tuple[Any, str]:
    _octets(fields, "k", "symmetricKey")
    return None, "[]uint8"


_READERS = {"RSA": _rsa, "EC": _ec, "OKP": _okp, "oct": _symmetric}


def _required(fields: dict[str, Value], field: str, name: str) -> None:
    if field not in fields:
        raise FuncError(f"failed to unmarshal JSON into key (*jwk.{name}): required field {field} is missing")


def _octets(fields: dict[str, Value], field: str, name: str) -> bytes:
    _required(fields, field, name)
    value = fields[field]
    if isinstance(value, str):
        try:
            text = to_bytes(value.rstrip("=").translate({ord("+"): "-", ord("/"): "_"}))
            return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except binascii.Error:
            pass
    raise FuncError(f"failed to unmarshal JSON into key (*jwk.{name}): failed to decode value for key {field}")


def _number(fields: dict[str, Value], field: str, name: str) -> int:
    return int.from_bytes(_octets(fields, field, name), "big")
