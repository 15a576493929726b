"""X.509 of providers: one small authority for each Service, one leaf for its server and one for its client.

All keys are ECDSA P-256. The time and every parameter are passed in; only keys and serial numbers are random.
Certificates start five minutes in the past, for peers whose clock is behind, and no leaf outlives its authority.

Loaded certificates are checked here too. A failed check is a `Problem`, never an exception with PEM in its text.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eso_api.values import SecretBytes
from eso_operator.certificates.problems import Problem, ProblemName
from eso_operator.certificates.state import MAX_PEM_BYTES, Credential, ServerNames, Window, timing_problem

_MAX_COMMON_NAME: Final = 64

# --- issuing ---------------------------------------------------------------------------------------------------------


def issue_authority(name: str, valid: Window) -> Credential:
    """Issue a new authority that may sign leaves only.

    Its subject contains a part of its serial number: during a rollover, peers trust two authorities of one Service, and
    a verifier that looks up the issuer by name must find the right one.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = _name(f"{name} CA", suffix=f" {serial & 0xFFFFFFFF:08x}")
    builder = (
        _builder(subject, subject, key.public_key(), valid)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return Credential(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue_server(authority: Credential, names: ServerNames, valid: Window) -> Credential:
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in names.addresses]
    alternatives.append(x509.UniformResourceIdentifier(names.identity))
    return _issue_leaf(authority, names.dns[0], alternatives, ExtendedKeyUsageOID.SERVER_AUTH, valid)


def issue_client(authority: Credential, identity: str, valid: Window) -> Credential:
    alternatives = [x509.UniformResourceIdentifier(identity)]
    return _issue_leaf(authority, "external-secrets", alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, valid)


def _issue_leaf(
    authority: Credential,
    name: str,
    alternatives: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    valid: Window,
) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = _private_key(authority.key)
    within = Window(
        max(valid.not_before, issuer.not_valid_before_utc), min(valid.not_after, issuer.not_valid_after_utc)
    )
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), within)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return Credential(_pem(builder.sign(signing_key, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: Window
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before(valid.not_before)
        .not_valid_after(valid.not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str, *, suffix: str = "") -> x509.Name:
    """Return the subject. A common name longer than 64 characters is cut and gets a digest of the whole text."""
    room = _MAX_COMMON_NAME - len(suffix)
    if len(text) > room:
        text = f"{text[: room - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text + suffix)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> SecretBytes:
    return SecretBytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _private_key(key: SecretBytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key.reveal(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of a managed authority is an EC key")  # noqa: TRY004 - the content is wrong
    return loaded


# --- reading ---------------------------------------------------------------------------------------------------------


def split(bundle: bytes) -> tuple[bytes, ...]:
    """Return the normalised certificates of a bundle, without repeats. Raises ValueError if it is not a bundle."""
    if len(bundle) > MAX_PEM_BYTES:
        raise ValueError("the bundle is too large")
    return tuple(dict.fromkeys(_pem(certificate) for certificate in x509.load_pem_x509_certificates(bundle)))


def validity_of(certificate: bytes) -> Window:
    loaded = x509.load_pem_x509_certificate(certificate)
    return Window(loaded.not_valid_before_utc, loaded.not_valid_after_utc)


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    leaf, issuer = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def key_fits(certificate: bytes, key: SecretBytes) -> bool:
    """Return whether the key belongs to the certificate, for any type of key."""
    try:
        private = serialization.load_pem_private_key(key.reveal(), password=None)
        public = x509.load_pem_x509_certificate(certificate).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.public_key().public_bytes(*form) == public.public_bytes(*form)


def names_of(certificate: bytes) -> frozenset[str]:
    """Return all alternative names: DNS names, addresses, URIs."""
    loaded = x509.load_pem_x509_certificate(certificate)
    try:
        found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(
        (
            *found.get_values_for_type(x509.DNSName),
            *found.get_values_for_type(x509.UniformResourceIdentifier),
            *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
        )
    )


# --- judging ---------------------------------------------------------------------------------------------------------


def authority_problem(authority: Credential, now: datetime) -> Problem | None:
    """Return why this authority cannot sign; None if it can."""
    if problem := _pair_problem(authority, "the authority"):
        return problem
    valid = validity_of(authority.certificate)
    if valid.not_after <= now:
        return Problem(ProblemName.AUTHORITY_EXPIRED, f"the authority has expired at {valid.not_after.isoformat()}")
    return None


def leaf_problem(leaf: Credential, trusted: Iterable[bytes], wanted: Iterable[str], now: datetime) -> Problem | None:
    """Return why a peer with these trusted authorities and wanted names would refuse the leaf; None if it would not."""
    if problem := _pair_problem(leaf, "the certificate") or timing_problem(validity_of(leaf.certificate), now):
        return problem
    issuers = [authority for authority in trusted if is_issued_by(leaf.certificate, authority)]
    if not any(validity_of(authority).not_after > now for authority in issuers):
        return Problem(ProblemName.UNKNOWN_CA, "the certificate is signed by no authority that is trusted now")
    if missing := sorted(set(wanted) - names_of(leaf.certificate)):
        return Problem(ProblemName.HOSTNAME_MISMATCH, f"the certificate does not name {', '.join(missing)}")
    return None


def _pair_problem(pair: Credential, what: str) -> Problem | None:
    try:
        split(pair.certificate)
    except ValueError:
        return Problem(ProblemName.MALFORMED, f"{what} is not a PEM certificate")
    if not key_fits(pair.certificate, pair.key):
        return Problem(ProblemName.KEY_MISMATCH, f"the private key does not belong to {what}")
    return None
