"""The server's own authority and certificates, in the data directory, and the kubeconfig that trusts them.

One CA signs the serving certificate and, on request, client certificates (the subject's CN is the user, each O a
group). Both are created on first start; the serving certificate is renewed before it expires or when its CA was
replaced. The CA key never leaves the directory, which only its owner may read.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localkube.storage import StorageError

# --- Small private files: certificates, tokens, kubeconfigs -----------------------------------------------------------
# A file is written completely or not at all (written beside, then renamed), and only its owner can read it from the
# first byte on.


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` atomically with a file of mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def private_directory(path: Path) -> Path:
    """Make the directory if it is missing, with mode 0700."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


AUTHORITY_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)
NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Certificates:
    """The certificates of one data directory."""

    def __init__(self, directory: Path, *, extra_names: Sequence[str] = ()) -> None:
        self._directory = private_directory(directory)
        self._extra = tuple(extra_names)

    @property
    def authority_pem(self) -> bytes:
        return self._file("ca.crt").read_bytes()

    def ensure(self, now: datetime) -> bool:
        """Make certificates that are missing or about to expire; return whether the serving certificate changed."""
        authority, names = self._load("ca"), self._subject_names()
        try:
            if authority is None or _expiring(authority, now):
                authority = _new_authority(now)
                self._store("ca", authority)
            if _still_serves(self._load("server"), authority, names, now):
                return False
            self._store("server", _new_serving(authority, names, now))
        except (ValueError, TypeError) as exc:
            what = f"the authority in {self._directory} (ca.crt, ca.key) cannot be read"
            raise StorageError(f"{what}; restore it, or remove both files to make a new one") from exc
        return True

    def issue_client(self, user: str, groups: Sequence[str], now: datetime) -> Pair:
        """Return a client certificate that authenticates as `user` in `groups`."""
        authority = self._load("ca")
        if authority is None:
            raise FileNotFoundError(f"no certificate authority in {self._directory}; start the server once")
        return _new_client(authority, user, groups, now)

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context: TLS 1.2 or newer; a client certificate is optional, and must be signed by our CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(self._file("ca.crt"))
        self.reload(context)
        return context

    def reload(self, context: ssl.SSLContext) -> None:
        """Reload the certificate from disk for new handshakes on `context`."""
        context.load_cert_chain(self._file("server.crt"), self._file("server.key"))

    def _subject_names(self) -> tuple[str, ...]:
        return (*NAMES, *ADDRESSES, *(name for name in self._extra if name not in NAMES + ADDRESSES))

    def _file(self, name: str) -> Path:
        return self._directory / name

    def _load(self, name: str) -> Pair | None:
        try:
            return Pair(self._file(f"{name}.crt").read_bytes(), self._file(f"{name}.key").read_bytes())
        except FileNotFoundError:
            return None

    def _store(self, name: str, pair: Pair) -> None:
        # The key is written first: a certificate without its key would be taken for a complete pair.
        write_private(self._file(f"{name}.key"), pair.key)
        write_private(self._file(f"{name}.crt"), pair.certificate)


def _still_serves(pair: Pair | None, authority: Pair, names: Sequence[str], now: datetime) -> bool:
    try:
        return pair is not None and not _expiring(pair, now) and _fits(pair, authority, names)
    except ValueError:  # damaged: treated as missing
        return False


def _expiring(pair: Pair, now: datetime) -> bool:
    return _parsed(pair).not_valid_after_utc - now < RENEW_BEFORE


def _fits(pair: Pair, authority: Pair, names: Sequence[str]) -> bool:
    """Return whether this authority signed it, for all these names, with the key stored beside it."""
    certificate = _parsed(pair)
    try:
        certificate.verify_directly_issued_by(_parsed(authority))
        key = _private_key(pair)
    except (InvalidSignature, ValueError, TypeError):
        return False
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    have = {*covered.get_values_for_type(x509.DNSName), *map(str, covered.get_values_for_type(x509.IPAddress))}
    return have >= set(names) and key.public_key() == certificate.public_key()


def _new_authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("localkube-ca")
    builder = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def _new_serving(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    builder, key = _leaf(authority, _name("localkube"), ExtendedKeyUsageOID.SERVER_AUTH, now)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
    )
    return _signed(builder, key, _private_key(authority))


def _new_client(authority: Pair, user: str, groups: Sequence[str], now: datetime) -> Pair:
    builder, key = _leaf(authority, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, now)
    return _signed(builder, key, _private_key(authority))


def _leaf(
    authority: Pair, subject: x509.Name, usage: x509.ObjectIdentifier, now: datetime
) -> tuple[x509.CertificateBuilder, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _parsed(authority)
    # A leaf must not outlive its authority, or verification fails with a message about the wrong certificate.
    lifetime = min(SERVING_LIFETIME, issuer.not_valid_after_utc - now)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(_private_key(authority).public_key())
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(signer, critical=False)
    )
    return builder, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Pair:
    certificate = builder.sign(signer, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), pem)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _parsed(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def _private_key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("expected an elliptic-curve key")
    return key


# --- The kubeconfig with which clients connect to the server ----------------------------------------------------------

NAME = "localkube"


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """The address and credentials of the server. It holds a credential, so its repr is empty."""

    server: str
    authority_pem: bytes
    token: str

    def __repr__(self) -> str:
        return f"Access(server={self.server!r})"


def kubeconfig(access: Access, *, namespace: str = "default") -> str:
    """Return a complete kubeconfig with one context, as YAML. It carries the token: write it with mode 0600."""
    authority = base64.b64encode(access.authority_pem).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": access.server, "certificate-authority-data": authority}}],
        "users": [{"name": NAME, "user": {"token": access.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(document, sort_keys=False)
