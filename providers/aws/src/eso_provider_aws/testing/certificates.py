"""Certificates for tests, and corrections of the test servers' deviations from Certificate Manager.

| behaviour of the service | moto | ministack |
|---|---|---|
| GetCertificate answers with the chain that was imported | adds a certificate to it | yes |
| GetCertificate repeats a leaf that was imported alone | no | no |
| an import under an ARN keeps its tags | no | yes |
| GetResources finds certificates | yes | no |
| ExportCertificate | yes | no |
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from eso_api.values import SecretBytes
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin
from kubebase.testing.signer import UNTIL, key_pem, unsigned


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with the chain above it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    above: tuple[x509.Certificate, ...] = ()

    @property
    def certificates(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.above))

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    @property
    def secret(self) -> dict[str, SecretBytes]:
        """Return the data of a kubernetes.io/tls Secret."""
        return {"tls.crt": SecretBytes(self.certificates), "tls.key": SecretBytes(self.key_pem)}


def issued(name: str, above: Issued | None = None, *, until: datetime = UNTIL) -> Issued:
    """Make a certificate, signed by the one above it or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = unsigned(name, key, above.certificate if above else None, until=until)
    certificate = builder.sign(above.key if above else key, hashes.SHA256())
    return Issued(certificate, key, (above.certificate, *above.above) if above else ())


def correct_responses(front: Front, server: str) -> Any:
    """Let the front correct the wrong responses of the server behind it; return a client."""
    client = admin("acm", server)
    front.respond("GetCertificate", lambda request: _certificate(client, request))
    front.respond("GetResources", lambda request: json_response(_resources(client, request)))
    return client


def json_response(body: Any) -> StubResponse:
    """Return a response of the JSON protocol."""
    return StubResponse(200, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.1"})


def _certificate(client: Any, request: RecordedRequest) -> StubResponse:
    try:
        response = client.get_certificate(CertificateArn=request.body["CertificateArn"])
    except client.exceptions.ResourceNotFoundException:
        return refused("ResourceNotFoundException")
    chain = (
        x509.load_pem_x509_certificates(response["CertificateChain"].encode()) if response["CertificateChain"] else []
    )
    remaining = [each for each in chain if "OU=Server CA 1B" not in each.subject.rfc4514_string()]
    above = b"".join(each.public_bytes(Encoding.PEM) for each in remaining).decode()
    return json_response({"Certificate": response["Certificate"], "CertificateChain": above or response["Certificate"]})


def _resources(client: Any, request: RecordedRequest) -> dict[str, Any]:
    found = []
    for each in client.list_certificates(MaxItems=1000)["CertificateSummaryList"]:
        tags = client.list_tags_for_certificate(CertificateArn=each["CertificateArn"])["Tags"]
        mapping = {tag["Key"]: tag["Value"] for tag in tags}
        if all(mapping.get(tag_filter["Key"]) in tag_filter["Values"] for tag_filter in request.body["TagFilters"]):
            found.append({"ResourceARN": each["CertificateArn"], "Tags": tags})
    return {"ResourceTagMappingList": found, "PaginationToken": ""}
