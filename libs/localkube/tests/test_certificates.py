"""Certificates: made once, kept private, renewed in time."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from localkube.access.certificates import RENEW_BEFORE, SERVING_LIFETIME, Certificates, write_private
from localkube.storage import StorageError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def serving(directory: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory / "server.crt").read_bytes())


def test_first_start_makes_private_files_for_every_local_name(tmp_path: Path) -> None:
    assert Certificates(tmp_path / "pki").ensure(NOW)

    names = serving(tmp_path / "pki").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1"} == {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "pki").iterdir()}
    assert modes == dict.fromkeys(["ca.crt", "ca.key", "server.crt", "server.key"], 0o600)


def test_the_next_start_keeps_them(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure(NOW)
    before = serving(tmp_path)

    assert not Certificates(tmp_path).ensure(NOW + timedelta(days=30))
    assert serving(tmp_path) == before


def test_a_certificate_near_its_end_is_replaced_under_the_same_authority(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)
    authority = certificates.authority_pem

    assert certificates.ensure(NOW + SERVING_LIFETIME - RENEW_BEFORE + timedelta(hours=1))
    assert certificates.authority_pem == authority
    serving(tmp_path).verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


@pytest.mark.parametrize("lost", ["server.key", "server.crt", "ca.key"])
def test_a_lost_file_is_made_again_and_fits_the_others(tmp_path: Path, lost: str) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)
    (tmp_path / lost).unlink()

    assert certificates.ensure(NOW)
    serving(tmp_path).verify_directly_issued_by(x509.load_pem_x509_certificate(certificates.authority_pem))
    certificates.server_context()


@pytest.mark.parametrize("damaged", ["server.key", "server.crt"])
def test_a_damaged_file_of_the_server_is_made_again(tmp_path: Path, damaged: str) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)
    (tmp_path / damaged).write_text("damaged")

    assert certificates.ensure(NOW)
    certificates.server_context()


@pytest.mark.parametrize("damaged", ["ca.key", "ca.crt"])
def test_a_damaged_authority_is_never_replaced_by_itself(tmp_path: Path, damaged: str) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)
    (tmp_path / damaged).write_text("damaged")
    (tmp_path / "server.crt").unlink()

    with pytest.raises(StorageError, match="cannot be read; restore it, or remove both files"):
        certificates.ensure(NOW)
    assert (tmp_path / damaged).read_text() == "damaged"


def test_a_key_that_does_not_fit_its_certificate_is_noticed(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)
    other = Certificates(tmp_path / "other")
    other.ensure(NOW)
    write_private(tmp_path / "server.key", (tmp_path / "other" / "server.key").read_bytes())

    assert certificates.ensure(NOW)
    certificates.server_context()


def test_a_client_certificate_carries_user_and_groups(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.ensure(NOW)

    pair = certificates.issue_client("eve", ["devs"], NOW)

    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    assert [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["eve"]
    assert [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["devs"]


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_private(path, b"one")

    write_private(path, b"two")

    assert path.read_bytes() == b"two"
    assert [file.name for file in path.parent.iterdir()] == ["file"]
