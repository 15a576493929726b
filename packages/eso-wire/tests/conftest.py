"""Freshly made certificates, as a fixture: test folders are not importable packages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509

from eso_api.values import SecretBytes
from eso_wire.tls import TlsMaterial
from kubebase.testing.signer import Signer

DAY = timedelta(days=1)


class Authority(Signer):
    """A CA for tests. `issue` makes a leaf that both ends can use."""

    __slots__ = ()

    def issue(
        self, name: str = "localhost", *, uri: str = "", valid_for: timedelta = DAY, trust: bytes = b""
    ) -> TlsMaterial:
        """A negative `valid_for` makes one that has expired."""
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if name == "localhost":
            names.append(x509.IPAddress(ip_address("127.0.0.1")))
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        signed = self.sign(name, names, until=datetime.now(UTC) + valid_for)
        return TlsMaterial(ca=trust or self.pem, certificate=signed.certificate, key=SecretBytes(signed.key))


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.make("test CA")


@pytest.fixture(scope="session")
def stranger() -> Authority:
    """A CA that no peer trusts."""
    return Authority.make("stranger")
