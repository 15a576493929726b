"""Certificates and keys as files hold them: what is read, what fits, and what peers refuse because of its dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eso_wire.tls import Fit, are_certificates, fit, has_invalid_dates

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
DAY = timedelta(days=1)

KINDS: dict[str, Callable[[], Key]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "short RSA": lambda: rsa.generate_private_key(65537, 1024),  # noqa: S505 - peers decide about it
}


def key_pem(
    key: Key,
    form: PrivateFormat = PrivateFormat.PKCS8,
    encryption: KeySerializationEncryption | None = None,
) -> bytes:
    return key.private_bytes(Encoding.PEM, form, encryption or NoEncryption())


def certificate_pem(
    key: Key,
    *,
    begin: timedelta = -DAY,
    end: timedelta = DAY,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> bytes:
    """A leaf that no authority of anybody has signed: who issued it does not matter here."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unknown CA")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number(), now + begin, now + end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM)


@pytest.fixture(scope="module")
def key() -> Key:
    return KINDS["P-256"]()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_fits_its_own_certificate_only(kind: str, key: Key) -> None:
    own, other = KINDS[kind](), KINDS[kind]()
    certificate = certificate_pem(own)

    found = [fit(certificate, key_pem(own)), fit(certificate, key_pem(other)), fit(certificate_pem(key), key_pem(own))]

    assert are_certificates(certificate)
    assert found == [Fit.FITS, Fit.MISMATCH, Fit.MISMATCH], "the last one also if the kinds of the keys differ"


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_key_may_have_any_usual_form(form: PrivateFormat, key: Key) -> None:
    found = fit(certificate_pem(key), key_pem(key, form))

    assert found is Fit.FITS


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda _: b"no PEM", id="some text"),
        pytest.param(lambda key: key_pem(key)[:60], id="half-written"),
        pytest.param(certificate_pem, id="a certificate"),
        pytest.param(lambda key: key_pem(key, encryption=BestAvailableEncryption(b"pw")), id="encrypted"),
        pytest.param(
            lambda key: key_pem(key, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"password")),
            id="encrypted, traditional form",
        ),
    ],
)
def test_a_key_that_cannot_be_read_is_told_from_a_wrong_one(spoil: Callable[[Key], bytes], key: Key) -> None:
    found = fit(certificate_pem(key), spoil(key))

    assert found is Fit.UNREADABLE


def test_a_key_beside_the_certificate_does_not_stand_in_for_the_key_file(key: Key) -> None:
    found = fit(certificate_pem(key) + key_pem(key), key_pem(KINDS["P-256"]()))

    assert found is Fit.MISMATCH


@pytest.mark.parametrize(
    ("change", "readable"),
    [
        pytest.param(lambda pem: pem + pem, True, id="the same one twice"),
        pytest.param(lambda pem: "# Főtanúsítvány\n".encode() + pem, True, id="a comment that is not ASCII"),
        pytest.param(lambda _: b"", False, id="empty"),
        pytest.param(lambda _: b"no PEM", False, id="some text"),
        pytest.param(lambda pem: pem[:80], False, id="half-written"),
        pytest.param(lambda pem: pem.replace(b"MI", b"\xc3\xbc", 1), False, id="not base64"),
    ],
)
def test_certificates_are_read_like_cryptography_reads_them(
    change: Callable[[bytes], bytes], *, readable: bool, key: Key
) -> None:
    pem = change(certificate_pem(key))

    assert are_certificates(pem) is readable
    assert _cryptography_reads(pem) is readable


def test_a_bundle_that_is_half_written_is_not_read_in_part(key: Key) -> None:
    pem = certificate_pem(key)

    assert not are_certificates(pem + pem[:80])


def _cryptography_reads(pem: bytes) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(pem))
    except ValueError:
        return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("begin", "end", "refused"),
    [
        pytest.param(-DAY, DAY, False, id="current"),
        pytest.param(-2 * DAY, -DAY, True, id="expired"),
        pytest.param(DAY, 2 * DAY, True, id="not valid yet"),
    ],
)
def test_a_client_refuses_a_certificate_outside_its_dates(
    kind: str, begin: timedelta, end: timedelta, *, refused: bool
) -> None:
    key = KINDS[kind]()

    found = has_invalid_dates(certificate_pem(key, begin=begin, end=end), key_pem(key))

    assert found is refused


def test_a_certificate_that_is_refused_for_another_reason_is_not_called_expired(key: Key) -> None:
    for_clients = has_invalid_dates(certificate_pem(key, purpose=ExtendedKeyUsageOID.CLIENT_AUTH), key_pem(key))
    not_fitting = has_invalid_dates(certificate_pem(key), key_pem(KINDS["P-256"]()))

    assert not for_clients
    assert not not_fitting
