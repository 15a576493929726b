"""Template functions that create certificates: authorities, self-signed and signed ones."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, ClassVar

from gotmpl import keys, pem, x509
from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import INT, LIST, STRING, Functions, GoType
from gotmpl.keys import KeyFormatError
from gotmpl.quoting import quote
from gotmpl.sprig.crypto import new_rsa_key
from gotmpl.sprig.encoding import b64_error
from gotmpl.values import GoObject, Value, to_bytes, to_text

COST = 8_000
MAX_DAYS = 365 * 7000


@dataclass(frozen=True)
class Pair(GoObject):
    """A certificate and its key, both as PEM."""

    go_type: ClassVar[str] = "sprig.certificate"
    kind: ClassVar[str] = "struct"

    cert: str
    key: str

    def go_string(self) -> str:
        return f"{{{self.cert} {self.key}}}"

    def go_syntax(self) -> str:
        return f"sprig.certificate{{Cert:{quote(self.cert)}, Key:{quote(self.key)}}}"

    def json_value(self) -> Value:
        return {"Cert": self.cert, "Key": self.key}


Pair.fields = {"Cert": lambda pair: pair.cert, "Key": lambda pair: pair.key}
PAIR = GoType("sprig.certificate", (Pair,))


def with_clock(now: Callable[[], int]) -> Functions:
    """Return the functions; `now` returns nanoseconds since 1970, from when certificates are valid."""
    functions = Functions()

    def today() -> datetime:
        return datetime.fromtimestamp(now() // 10**9, UTC)

    def authority(name: str, days: int, key: Any) -> Pair:
        return _signed(_Request(name, [], [], days, today(), is_authority=True), key, None)

    def self_signed(name: str, ips: Any, hosts: Any, days: int, key: Any) -> Pair:
        return _signed(_request(name, ips, hosts, days, today()), key, None)

    def signed(*arguments: Value) -> Pair:
        name, ips, hosts, days, signer, key = arguments
        parent = _signer(signer)
        return _signed(_request(name, ips, hosts, days, today()), key, parent)

    _twins(functions, "genCA", (STRING, INT), authority)
    _twins(functions, "genSelfSignedCert", (STRING, LIST, LIST, INT), self_signed)
    _twins(functions, "genSignedCert", (STRING, LIST, LIST, INT, PAIR), signed)
    functions.add("buildCustomCert", params=(STRING, STRING))(build_custom_cert)
    return functions


def _twins(functions: Functions, name: str, params: tuple[GoType, ...], make: Callable[..., Pair]) -> None:
    """Add the function that generates a key, and its twin that receives one."""

    def fresh(*arguments: Value) -> Pair:
        return make(*arguments, new_rsa_key())

    def given(*arguments: Value) -> Pair:
        try:
            key = keys.from_pem(to_bytes(arguments[-1]))
        except KeyFormatError as exc:
            raise FuncError(f"parsing private key: {exc}") from None
        return make(*arguments[:-1], key)

    functions.add(name, params=params, cost=COST)(fresh)
    functions.add(f"{name}WithKey", params=(*params, STRING), cost=COST)(given)


@dataclass(frozen=True, slots=True)
class _Request:
    name: str
    addresses: list[Any]
    hosts: list[str]
    days: int
    today: datetime
    is_authority: bool = False


def _request(name: str, ips: list[Value] | None, hosts: list[Value] | None, days: int, today: datetime) -> _Request:
    addresses = [_address(entry) for entry in ips or []]
    for host in hosts or []:
        if not isinstance(host, str):
            raise FuncError("error processing alternate dns name: ", Quoted(host), " is not a string")
    return _Request(name, addresses, list(hosts or []), days, today)


def _address(entry: Value) -> Any:
    if not isinstance(entry, str):
        raise FuncError("error parsing ip: ", Quoted(entry), " is not a string")
    try:
        return ip_address(entry)
    except ValueError:
        raise FuncError("error parsing ip: ", Quoted(entry)) from None


def _signer(pair: Pair) -> tuple[Any, Any]:
    """Return certificate and key of the signing authority."""
    from cryptography.x509 import load_der_x509_certificate

    block, _ = pem.decode(to_bytes(pair.cert))
    if block is None:
        raise FuncError("unable to decode certificate")
    try:
        certificate = load_der_x509_certificate(x509.parse(block.content).raw)
    except ValueError as exc:
        reason = exc if isinstance(exc, x509.CertificateError) else "x509: malformed certificate"
        raise FuncError(f"error parsing certificate: decodedSignerCert.Bytes: {reason}") from None
    try:
        return certificate, keys.from_pem(to_bytes(pair.key))
    except KeyFormatError as exc:
        raise FuncError(f"error parsing private key: {exc}") from None


def _signed(request: _Request, key: Any, parent: tuple[Any, Any] | None) -> Pair:
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    signing_key = parent[1] if parent else key
    algorithm = None if isinstance(signing_key, ed25519.Ed25519PrivateKey) else SHA256()
    try:
        certificate = _builder(request, key, parent).sign(signing_key, algorithm)
    except (ValueError, TypeError):
        raise FuncError("error creating certificate: the name, key or validity cannot be encoded") from None
    return Pair(pem.encoded("CERTIFICATE", certificate.public_bytes(Encoding.DER)), keys.to_pem(key))


def _builder(request: _Request, key: Any, parent: tuple[Any, Any] | None) -> Any:
    from cryptography import x509 as cx509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    attributes = [cx509.NameAttribute(NameOID.COMMON_NAME, request.name, _validate=False)] if request.name else []
    subject = cx509.Name(attributes)
    days = max(-MAX_DAYS, min(request.days, MAX_DAYS))
    builder = (
        cx509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(parent[0].subject if parent else subject)
        .public_key(key.public_key())
        .serial_number(secrets.randbits(127) + 1)
        .not_valid_before(request.today)
        .not_valid_after(request.today + timedelta(days=days))
        .add_extension(_usage(certifies=request.is_authority), critical=True)
        .add_extension(
            cx509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(cx509.BasicConstraints(ca=request.is_authority, path_length=None), critical=True)
    )
    if request.is_authority:
        builder = builder.add_extension(cx509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    if parent is not None:
        builder = _with_authority_key(builder, parent[0])
    names = [*map(cx509.DNSName, request.hosts), *map(cx509.IPAddress, request.addresses)]
    return builder.add_extension(cx509.SubjectAlternativeName(names), critical=not request.name) if names else builder


def _usage(*, certifies: bool) -> Any:
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certifies,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _with_authority_key(builder: Any, parent: Any) -> Any:
    from cryptography import x509 as cx509

    try:
        identifier = parent.extensions.get_extension_for_class(cx509.SubjectKeyIdentifier).value
    except cx509.ExtensionNotFound:
        return builder
    return builder.add_extension(
        cx509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )


def build_custom_cert(encoded_cert: str, encoded_key: str) -> Pair:
    if b64_error(encoded_cert):
        raise FuncError("unable to decode base64 certificate")
    if b64_error(encoded_key):
        raise FuncError("unable to decode base64 private key")
    cert, key = base64.b64decode(encoded_cert), base64.b64decode(encoded_key)
    block, _ = pem.decode(cert)
    if block is None:
        raise FuncError("unable to decode certificate")
    try:
        x509.parse(block.content)
    except x509.CertificateError as exc:
        raise FuncError(f"error parsing certificate: decodedCert.Bytes: {exc}") from None
    try:
        keys.from_pem(key)
    except KeyFormatError as exc:
        raise FuncError(f"error parsing private key: {exc}") from None
    return Pair(to_text(cert), to_text(key))
