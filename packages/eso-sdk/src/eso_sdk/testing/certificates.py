"""Throwaway certificates for tests of real servers: an authority, and leaves with SPIFFE names."""

from __future__ import annotations

import ipaddress
from datetime import datetime
from pathlib import Path

from cryptography import x509

from eso_api.values import SecretBytes
from eso_wire.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsMaterial
from kubebase.testing.signer import UNTIL, Signer

SERVER_NAME = "provider.test"


class Authority(Signer):
    """An authority that one test trusts."""

    __slots__ = ()

    def leaf(self, spiffe_id: str, *, until: datetime = UNTIL) -> TlsMaterial:
        """Return a certificate for either end that trusts this authority."""
        names = [
            x509.DNSName(SERVER_NAME),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.UniformResourceIdentifier(spiffe_id),
        ]
        signed = self.sign("leaf", names, until=until)
        return TlsMaterial(self.pem, signed.certificate, SecretBytes(signed.key))


def write_material(folder: Path, material: TlsMaterial) -> None:
    """Write the three files of a mounted Secret."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CA_FILE).write_bytes(material.ca)
    (folder / CERTIFICATE_FILE).write_bytes(material.certificate)
    (folder / KEY_FILE).write_bytes(material.key.reveal())
