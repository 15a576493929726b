"""Contexts that read the system's authorities for their first connection."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kubebase.lateauthorities import late_authorities
from kubebase.testing.signer import Signer


@pytest.fixture
def system_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one authority be all that the system trusts."""
    file = tmp_path / "authorities.pem"
    file.write_bytes(Signer.make().pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))


@pytest.mark.usefixtures("system_trusts")
def test_a_context_reads_the_authorities_for_its_first_connection() -> None:
    with late_authorities():
        context = ssl.create_default_context()
    before = len(context.get_ca_certs())

    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="example.com")

    assert (before, len(context.get_ca_certs())) == (0, 1)
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.usefixtures("system_trusts")
def test_a_context_that_is_made_afterwards_reads_them_at_once() -> None:
    with late_authorities():
        pass

    context = ssl.create_default_context()

    assert len(context.get_ca_certs()) == 1


@pytest.mark.usefixtures("system_trusts")
def test_a_context_of_another_class_reads_them_at_once() -> None:
    class Own(ssl.SSLContext):
        pass

    with late_authorities():
        context = Own(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()

    assert len(context.get_ca_certs()) == 1
