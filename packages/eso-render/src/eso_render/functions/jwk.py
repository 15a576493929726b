"""JSON Web Keys to PEM.

All fields are read in the order of the text before the key is built, so errors are found in Go's order.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, NamedTuple

from gotmpl import der, keys, pem
from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import STRING, Functions
from gotmpl.jsontext import JsonError, decode_first, kind_of
from gotmpl.values import Value, to_bytes

FUNCTIONS = Functions()


@FUNCTIONS.add("jwkPublicKeyPem", params=(STRING,), cost=20)
def jwk_public_key_pem(text: str) -> str:
    material = _material(text)
    if material.public is None:
        raise FuncError(f"x509: unsupported public key type: {material.go_type}")

    key = _built(material.public)
    return pem.encoded("PUBLIC KEY", key if isinstance(key, bytes) else _subject_public_key_info(key))


def _subject_public_key_info(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    info: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return info


@FUNCTIONS.add("jwkPrivateKeyPem", params=(STRING,), cost=20)
def jwk_private_key_pem(text: str) -> str:
    material = _material(text)
    if material.private is None:
        raise FuncError(f"x509: unknown key type while marshaling PKCS#8: {material.go_type}")
    return pem.encoded("PRIVATE KEY", keys.to_pkcs8(_built(material.private)))


class Material(NamedTuple):
    """The name of the key's Go type, and the makers of the public or private key: as DER, or by `cryptography`."""

    go_type: str
    public: Callable[[], Any] | None = None
    private: Callable[[], Any] | None = None


def _built(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError:
        raise FuncError("failed to build the key: its numbers do not make one") from None


class _Fields(NamedTuple):
    go_name: str
    """The Go type of the key, for messages."""
    private: bool
    octets: dict[str, bytes]
    texts: dict[str, str]

    def need(self, *names: str) -> None:
        for name in names:
            if name not in self.octets and name not in self.texts:
                problem = f"required field {name} is missing"
                raise FuncError(f"failed to unmarshal JSON into key (*jwk.{self.go_name}): {problem}")

    def number(self, name: str) -> int:
        return int.from_bytes(self.octets.get(name, b""), "big")


def _material(text: str) -> Material:
    try:
        fields = decode_first(text) if text.strip(" \t\r\n") else _refuse("EOF")
    except JsonError as exc:
        at_the_end = str(exc) == "unexpected end of JSON input"
        words = ("unexpected EOF",) if at_the_end else exc.parts
        raise FuncError("failed to unmarshal JSON into key hint: ", *words) from None
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise FuncError(f"failed to unmarshal JSON into key hint: {_NOT_AN_OBJECT.format(kind_of(fields))}")
    kind = _kind(fields)
    if not isinstance(kind, str):
        problem = f"json: cannot unmarshal {kind_of(kind)} into Go struct field .kty of type string"
        raise FuncError(f"failed to unmarshal JSON into key hint: {problem}")
    if kind not in _READERS:
        raise FuncError("invalid key type from JSON (", Quoted(kind), ")")
    read, go_name = _READERS[kind]
    private = "d" in map(str.lower, fields)
    if kind != "oct":
        go_name += "PrivateKey" if private else "PublicKey"
    return read(_read(fields, go_name, private=private))


def _kind(fields: dict[str, Value]) -> Value:
    """Return the key type. Go ignores the case of the field's name here."""
    return next((value for name, value in reversed(fields.items()) if name.lower() == "kty" and value is not None), "")


_NOT_AN_OBJECT = (
    "json: cannot unmarshal {} into Go value of type "
    'struct {{ Kty string "json:\\"kty\\""; D jsontext.Value "json:\\"d\\"" }}'
)


def _refuse(reason: str) -> Value:
    raise JsonError(reason)


_RSA_PUBLIC = frozenset({"n", "e"})
_OCTETS = {
    "rsaPublicKey": _RSA_PUBLIC,
    "rsaPrivateKey": _RSA_PUBLIC | {"d", "p", "q", "dp", "dq", "qi"},
    "ecdsaPublicKey": frozenset({"x", "y"}),
    "ecdsaPrivateKey": frozenset({"x", "y", "d"}),
    "okpPublicKey": frozenset({"x"}),
    "okpPrivateKey": frozenset({"x", "d"}),
    "symmetricKey": frozenset({"k"}),
}
"""The fields that each Go type reads as bytes."""
_TEXTS = {"alg": "string", "crv": "jwa.EllipticCurveAlgorithm"}
_TEXTS_READ_AS_TOKENS = frozenset({"kid", "use", "x5t", "x5t#S256", "x5u"})


def _read(fields: dict[str, Value], go_name: str, *, private: bool) -> _Fields:
    out = _Fields(go_name, private, {}, {})
    for name, value in fields.items():
        try:
            if name in _OCTETS[go_name]:
                out.octets[name] = _octets(value)
            elif name in _TEXTS_READ_AS_TOKENS:
                _token(value)
            elif name == "key_ops":
                _list(value)
            elif name in _TEXTS and (name != "crv" or "x" in _OCTETS[go_name]):
                out.texts[name] = _text(value, _TEXTS[name])
        except JsonError as exc:
            problem = f"failed to decode value for key {name}: {exc}"
            raise FuncError(f"failed to unmarshal JSON into key (*jwk.{go_name}): {problem}") from None
    return out


def _text(value: Value, go_type: str) -> str:
    """Return a text field. As in Go, null leaves the string empty."""
    if value is not None and not isinstance(value, str):
        raise JsonError(f"json: cannot unmarshal {kind_of(value)} into Go value of type {go_type}")
    return value or ""


def _list(value: Value) -> None:
    if value is not None and not isinstance(value, list):
        raise JsonError(f"json: cannot unmarshal {kind_of(value)} into Go value of type jwk.KeyOperationList")


def _token(value: Value) -> str:
    try:
        return _text(value, "string")
    except JsonError as exc:
        raise JsonError(f"error reading next value: {exc}") from None


def _octets(value: Value) -> bytes:
    """Decode Base64 of either alphabet, padded or not, ignoring line breaks."""
    text = _token(value).replace("\n", "").replace("\r", "")
    alphabet = b"+/" if "+" in text or "/" in text else b"-_"
    padding = "" if text.endswith("=") else "=" * (-len(text) % 4)
    raw = to_bytes(text + padding)
    try:
        return base64.b64decode(raw if len(raw) % 4 == 0 else b"=", altchars=alphabet, validate=True)
    except binascii.Error:
        raise JsonError("expected base64 encoded []byte (string)") from None


def _rsa(fields: _Fields) -> Material:
    from cryptography.hazmat.primitives.asymmetric import rsa

    fields.need(*("d", "e", "n") if fields.private else ("e", "n"))
    exponent, modulus = fields.number("e"), fields.number("n")
    if not fields.private:
        return Material("*rsa.PublicKey", public=lambda: _rsa_public_key(modulus, exponent))
    public = rsa.RSAPublicNumbers(exponent, modulus)

    def private() -> Any:
        p, q, d = fields.number("p"), fields.number("q"), fields.number("d")
        if not p or not q:
            raise FuncError("modulus must be > 1")
        if p * q != modulus:
            raise FuncError("crypto/rsa: p * q != n")
        exponents = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
        return rsa.RSAPrivateNumbers(p, q, d, *exponents, public).private_key()

    return Material("*rsa.PrivateKey", private=private)


def _rsa_public_key(modulus: int, exponent: int) -> bytes:
    """Encode the numbers. As in Go, their validity is not checked."""
    algorithm = der.sequence(der.identifier("1.2.840.113549.1.1.1"), der.element(der.NULL, b""))
    numbers = der.sequence(der.number(modulus), der.number(exponent))
    return der.sequence(algorithm, der.element(der.BIT_STRING, b"\0" + numbers))


def _ec(fields: _Fields) -> Material:
    from cryptography.hazmat.primitives.asymmetric import ec

    fields.need(*("crv", "d", "x", "y") if fields.private else ("crv", "x", "y"))
    curves: dict[str, Callable[[], ec.EllipticCurve]] = {
        "P-256": ec.SECP256R1,
        "P-384": ec.SECP384R1,
        "P-521": ec.SECP521R1,
    }
    make = curves.get(fields.texts["crv"])
    if make is None:
        raise FuncError("failed to build public key: invalid curve algorithm ", Quoted(fields.texts["crv"]))
    curve = make()
    public = ec.EllipticCurvePublicNumbers(fields.number("x"), fields.number("y"), curve)

    def public_key() -> ec.EllipticCurvePublicKey:
        if max(public.x, public.y).bit_length() > (curve.key_size + 7) // 8 * 8:
            raise FuncError("overflowing coordinate")
        try:
            return public.public_key()
        except ValueError:
            raise FuncError(f"P{curve.key_size} point not on curve") from None

    def private_key() -> ec.EllipticCurvePrivateKey:
        secret = fields.number("d")
        try:
            public_key()
        except FuncError as exc:
            raise FuncError(_UNMARSHALED, *exc.parts) from None
        if not secret:
            raise FuncError(_UNMARSHALED, "ecdsa: private key scalar is zero or negative")
        return ec.EllipticCurvePrivateNumbers(secret, public).private_key()

    if fields.private:
        return Material("*ecdsa.PrivateKey", private=private_key)
    return Material("*ecdsa.PublicKey", public=public_key)


_UNMARSHALED = "x509: failed to marshal EC private key while building PKCS#8: "


def _okp(fields: _Fields) -> Material:
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

    fields.need(*("crv", "d", "x") if fields.private else ("crv", "x"))
    curve, public, seed = fields.texts["crv"], fields.octets["x"], fields.octets.get("d", b"")
    if fields.private and not seed:
        raise FuncError("failed to build public key: cannot use empty seed")
    if curve not in {"Ed25519", "X25519"}:
        raise FuncError("failed to build public key: invalid curve algorithm ", Quoted(curve))
    if not fields.private and curve == "Ed25519":
        return Material("ed25519.PublicKey", public=lambda: ed25519.Ed25519PublicKey.from_public_bytes(public))
    if not fields.private:
        return Material("x25519.PublicKey")
    if len(seed) != 32:
        reason = "wrong private key size" if curve == "Ed25519" else _WRONG_SEED.format(len(seed))
        raise FuncError(f"failed to build public key: {reason}")
    maker = ed25519.Ed25519PrivateKey if curve == "Ed25519" else x25519.X25519PrivateKey
    key = maker.from_private_bytes(seed)
    if key.public_key().public_bytes_raw() != public:
        raise FuncError("failed to build public key: invalid x value given d value")
    return Material("ed25519.PrivateKey", private=lambda: key) if curve == "Ed25519" else Material("x25519.PrivateKey")


_WRONG_SEED = "unable to construct x25519 private key from seed: x25519: bad seed length: {}"


def _symmetric(fields: _Fields) -> Material:
    fields.need("k")
    return Material("[]uint8")


_READERS = {"RSA": (_rsa, "rsa"), "EC": (_ec, "ecdsa"), "OKP": (_okp, "okp"), "oct": (_symmetric, "symmetricKey")}
