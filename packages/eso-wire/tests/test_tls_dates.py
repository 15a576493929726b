"""The dates of certificates, compared with what cryptography reads."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eso_wire.tls import validity_of

KEY = ec.generate_private_key(ec.SECP256R1())


def made(begin: datetime, end: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    return builder.serial_number(2**158).not_valid_before(begin).not_valid_after(end).sign(KEY, hashes.SHA256())


def of_year(year: int) -> x509.Certificate:
    return made(datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC))


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [1950, 1999, 2000, 2026, 2049, 2050, 2051, 9998])
def test_dates_of_both_forms_are_read(year: int) -> None:
    begin = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)
    certificate = made(begin, begin + timedelta(days=300))

    found = validity_of(pem(certificate))

    assert found == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    assert found.not_before == begin


def test_the_first_certificate_of_a_chain_counts_whatever_stands_around_it() -> None:
    first, second = (
        made(datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)) for year in (2030, 2040)
    )
    text = b"Bag Attributes: caf\xc3\xa9\n" + pem(first).replace(b"\n", b"\r\n") + b"comment\n" + pem(second)

    assert validity_of(text).not_before.year == 2030


def test_the_older_name_of_a_block_is_read() -> None:
    certificate = of_year(2030)

    assert validity_of(pem(certificate).replace(b" CERTIFICATE", b" X509 CERTIFICATE")).not_after.year == 2031


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", id="an empty block"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nabcde\n-----END CERTIFICATE-----\n", id="no base64"),
        pytest.param(b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", id="a key"),
    ],
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        validity_of(text)


def test_a_certificate_that_is_cut_off_or_damaged_never_raises_anything_else() -> None:
    whole = of_year(2030).public_bytes(serialization.Encoding.DER)
    cut = [whole[:size] for size in range(len(whole))]
    damaged = [
        whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for at in range(250) for flip in (1, 0x80, 0xFF)
    ]

    for der in cut:
        with pytest.raises(ValueError, match="certificate"):
            validity_of(_block(der))
    for der in damaged:
        try:
            validity_of(_block(der))
        except ValueError:
            continue


def _block(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + b64encode(der) + b"\n-----END CERTIFICATE-----\n"
