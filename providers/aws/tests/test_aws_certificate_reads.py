"""Reading certificates: the content of an export, when it is paid for, and the errors."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from eso_api.values import SecretBytes
from eso_provider_aws.certificates import MAX_EXPORTS, Exported, Exports
from eso_provider_aws.provider import PROVIDER, CertificateManager
from eso_provider_aws.testing.front import Front, StubResponse, refused
from eso_provider_aws.testing.sessions import AUTH, REGION, admin, context, credentials, issued, json_response, read
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.moto import Moto
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Operation, RemoteRef, SpecCondition
from kubebase.clock import SystemClock

AUTHORITY = "arn:aws:acm-pca:eu-west-1:123456789012:certificate-authority/12345678-1234-1234-1234-123456789012"
ROLE = "arn:aws:iam::123456789012:role/certificates"
ABSENT = "arn:aws:acm:eu-west-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"


@pytest.fixture
def acm(moto: Moto) -> Any:
    return admin("acm", moto.url)


@pytest.fixture
def private(acm: Any) -> str:
    """The ARN of a certificate of a private authority: moto issues those at once."""
    return str(acm.request_certificate(DomainName="app.example", CertificateAuthorityArn=AUTHORITY)["CertificateArn"])


async def only(provider: InMemory, ref: RemoteRef | str) -> bytes | ProviderError:
    (found,) = await read(provider, context(CertificateManager), ref)
    return found


async def failure(provider: InMemory, ref: RemoteRef | str) -> ProviderError:
    found = await only(provider, ref)
    assert isinstance(found, ProviderError)
    return found


def passphrases(front: Front) -> list[bytes]:
    exports = [request for request in front.requests if request.operation == "ExportCertificate"]
    return [base64.b64decode(request.body["Passphrase"]) for request in exports]


# --- values ----------------------------------------------------------------------------------------------------------


async def test_a_certificate_is_its_leaf_its_chain_and_its_decrypted_key(
    front: Front, provider: InMemory, acm: Any, private: str
) -> None:
    response = acm.get_certificate(CertificateArn=private)

    whole = await only(provider, private)

    assert isinstance(whole, bytes)
    text = whole.decode()
    assert text.startswith(
        response["Certificate"].rstrip("\n") + "\n" + response["CertificateChain"].rstrip("\n") + "\n"
    )
    assert text.count("-----BEGIN PRIVATE KEY-----") == 1
    assert text.endswith("-----END PRIVATE KEY-----\n")
    assert "\n\n" not in text
    key = load_pem_private_key(text[text.index("-----BEGIN PRIVATE") :].encode(), None)
    assert key.public_key() == x509.load_pem_x509_certificate(whole).public_key()
    assert front.counts == {"GetCertificate": 1, "DescribeCertificate": 1, "ExportCertificate": 1}


async def test_every_export_has_a_passphrase_of_its_own(front: Front, provider: InMemory, acm: Any) -> None:
    for name in ("one.example", "two.example"):
        made = acm.request_certificate(DomainName=name, CertificateAuthorityArn=AUTHORITY)
        await only(provider, made["CertificateArn"])

    first, second = passphrases(front)
    assert first != second
    assert [len(each) for each in (first, second)] == [32, 32]
    assert (first + second).isalnum()


async def test_the_properties_of_a_tls_secret_share_one_read(front: Front, provider: InMemory, private: str) -> None:
    refs = [RemoteRef(private, property=part) for part in ("", "tls.crt", "tls.key", "ca.crt")]

    whole, certificates, key, other = await read(provider, context(CertificateManager), *refs)

    assert isinstance(certificates, bytes)
    assert isinstance(key, bytes)
    assert certificates + key == whole
    assert key.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert isinstance(other, ProviderError)
    assert other.reason is ErrorReason.PROPERTY_NOT_FOUND
    assert front.counts == {"GetCertificate": 1, "DescribeCertificate": 1, "ExportCertificate": 1}


async def test_a_public_certificate_with_export_enabled_is_read(front: Front, provider: InMemory, acm: Any) -> None:
    made = acm.request_certificate(DomainName="public.example", Options={"Export": "ENABLED"})
    # moto takes a minute to issue it.
    detail = {"Status": "ISSUED", "Type": "AMAZON_ISSUED", "Options": {"Export": "ENABLED"}}
    front.respond("DescribeCertificate", json_response({"Certificate": detail}))

    whole = await only(provider, made["CertificateArn"])

    assert isinstance(whole, bytes)
    assert front.count("ExportCertificate") == 1


async def test_prefix_is_not_put_before_an_arn(front: Front, provider: InMemory, private: str) -> None:
    (whole,) = await read(provider, context(CertificateManager, prefix="team/"), private)

    assert isinstance(whole, bytes)
    assert front.requests[0].body == {"CertificateArn": private}


# --- what is paid for ------------------------------------------------------------------------------------------------


async def test_an_unchanged_certificate_is_exported_once_also_after_its_session_ended(
    front: Front, private: str
) -> None:
    clock = SystemClock()
    async with InMemory(PROVIDER, clock) as provider:
        first = await only(provider, private)
        again = await only(provider, private)
    async with InMemory(PROVIDER, clock) as provider:
        later = await only(provider, private)

    assert first == again == later
    assert front.counts == {"GetCertificate": 3, "DescribeCertificate": 1, "ExportCertificate": 1}


async def test_another_identity_does_not_get_what_the_first_one_exported(
    front: Front, provider: InMemory, private: str
) -> None:
    await only(provider, private)
    front.respond("DescribeCertificate", refused("AccessDeniedException"))

    (other,) = await read(provider, context(CertificateManager, ("AKIAIOSFODNN8EXAMPLE", "other")), private)

    assert isinstance(other, ProviderError)
    assert other.reason is ErrorReason.PERMISSION_DENIED
    assert other.message.endswith("DescribeCertificate is denied (HTTP 400); allow acm:DescribeCertificate")


async def test_namespaces_that_are_distinguished_by_session_tags_share_no_export(
    front: Front, provider: InMemory, private: str
) -> None:
    spec = {"region": REGION, "auth": AUTH, "role": ROLE, "sessionTagsPolicy": "Simple"}
    calls = [call_context(CertificateManager, spec, credentials(), namespace=name) for name in ("team-a", "team-b")]

    for call in calls:
        await read(provider, call, private)

    tagged = [request.body for request in front.requests if request.operation == "AssumeRole"]
    assert [body["Tags.member.1.Value"] for body in tagged] == ["team-a", "team-b"]
    assert front.count("ExportCertificate") == 2


async def test_reads_of_several_stores_that_come_together_pay_for_one_export(
    front: Front, provider: InMemory, private: str
) -> None:
    calls = [context(CertificateManager, prefix=f"{number}") for number in range(5)]

    found = await asyncio.gather(*(read(provider, call, private) for call in calls))

    assert len({value for (value,) in found if isinstance(value, bytes)}) == 1
    assert front.count("GetCertificate") == 5
    assert front.count("ExportCertificate") == 1


async def test_a_renewed_certificate_is_exported_again(
    front: Front, provider: InMemory, acm: Any, private: str
) -> None:
    await only(provider, private)
    response = acm.get_certificate(CertificateArn=private)
    renewed = issued("app.example", issued("authority"))
    front.respond(
        "GetCertificate",
        json_response({"Certificate": renewed.certificates.decode(), "CertificateChain": response["CertificateChain"]}),
    )

    await only(provider, private)

    assert front.count("ExportCertificate") == 2


async def test_the_fingerprint_is_the_version(front: Front, provider: InMemory, private: str) -> None:
    first = await provider.get_one(context(CertificateManager), private)
    again = await provider.get_one(context(CertificateManager), private)

    assert len(first.metadata.provider_version) == 64
    assert again.metadata == first.metadata
    assert front.count("ExportCertificate") == 1


def test_exports_are_bounded_and_hide_their_keys() -> None:
    exports = Exports()
    for number in range(MAX_EXPORTS + 1):
        exports.put(number, Exported("print", "certificates", SecretBytes(b"canary")))

    assert exports.find(0, "print") is None
    assert exports.find(MAX_EXPORTS, "another print") is None
    cached = exports.find(MAX_EXPORTS, "print")
    assert cached is not None
    assert "canary" not in repr(cached)


# --- what cannot be read ---------------------------------------------------------------------------------------------


async def test_an_absent_certificate_is_not_found(front: Front, provider: InMemory) -> None:
    failed = await failure(provider, ABSENT)

    assert failed.reason is ErrorReason.SECRET_NOT_FOUND
    assert failed.message == f'certificate "{ABSENT}" in eu-west-1 does not exist'
    assert front.counts == {"GetCertificate": 1, "GetCallerIdentity": 1}


@pytest.mark.usefixtures("front")
async def test_a_certificate_of_another_account_is_not_called_absent(provider: InMemory) -> None:
    arn = ABSENT.replace("123456789012:c", "999999999999:c")

    failed = await failure(provider, arn)

    assert failed.reason is ErrorReason.INVALID_REQUEST
    assert failed.message == (
        f'certificate "{arn}" belongs to account 999999999999, the store signs in to account 123456789012; set role to'
        " a role of that account"
    )


async def test_without_a_response_about_the_account_nothing_is_called_absent(front: Front, provider: InMemory) -> None:
    front.respond("GetCallerIdentity", StubResponse(503, b""))

    failed = await failure(provider, ABSENT)

    assert failed.reason is ErrorReason.BACKEND_UNAVAILABLE


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        pytest.param(
            RemoteRef("app/tls"),
            '"app/tls" is not the ARN of a certificate; write one such as'
            " arn:aws:acm:eu-west-1:123456789012:certificate/ID",
            id="a name",
        ),
        pytest.param(
            RemoteRef("arn:aws:secretsmanager:eu-west-1:123456789012:secret:a"),
            '"arn:aws:secretsmanager:eu-west-1:123456789012:secret:a" is not the ARN of a certificate',
            id="the ARN of something else",
        ),
        pytest.param(
            RemoteRef(ABSENT.replace("eu-west-1", "us-east-1")),
            "is in us-east-1, the store is for eu-west-1; use a store for its region",
            id="another region",
        ),
        pytest.param(RemoteRef(ABSENT, version="2"), "has no versions to choose from; remove version", id="a version"),
    ],
)
async def test_a_reference_that_cannot_be_is_refused_before_any_call(
    front: Front, provider: InMemory, ref: RemoteRef, text: str
) -> None:
    failed = await failure(provider, ref)

    assert failed.reason is ErrorReason.INVALID_REQUEST
    assert text in failed.message
    assert not front.requests


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        pytest.param(
            {"Status": "ISSUED", "Type": "IMPORTED"},
            (
                ErrorReason.INVALID_REQUEST,
                (
                    "it was imported, and Certificate Manager does not export imported certificates; read it from its"
                    " origin"
                ),
            ),
            id="imported",
        ),
        pytest.param(
            {"Status": "ISSUED", "Type": "AMAZON_ISSUED", "Options": {"Export": "DISABLED"}},
            (
                ErrorReason.INVALID_REQUEST,
                "it was requested without export, which cannot be changed; request one with export enabled",
            ),
            id="requested without export",
        ),
        pytest.param(
            {"Status": "ISSUED", "Type": "AMAZON_ISSUED"},
            (ErrorReason.INVALID_REQUEST, "it was requested without export"),
            id="older than exports",
        ),
        pytest.param(
            {"Status": "PENDING_VALIDATION", "Type": "AMAZON_ISSUED", "Options": {"Export": "ENABLED"}},
            (ErrorReason.BACKEND_ERROR, "is not issued yet; complete the validation of its domains"),
            id="pending",
        ),
        pytest.param(
            {"Status": "REVOKED", "Type": "PRIVATE"},
            (ErrorReason.BACKEND_ERROR, "cannot be exported: its status is REVOKED; replace it"),
            id="revoked",
        ),
    ],
)
async def test_a_certificate_that_cannot_be_exported_reports_why_and_costs_nothing(
    front: Front, provider: InMemory, private: str, detail: dict[str, Any], expected: tuple[ErrorReason, str]
) -> None:
    front.respond("DescribeCertificate", json_response({"Certificate": detail}))

    failed = await failure(provider, private)

    assert failed.reason is expected[0]
    assert failed.message.startswith(f'certificate "{private}" in eu-west-1 ')
    assert expected[1] in failed.message
    assert front.count("ExportCertificate") == 0


async def test_a_certificate_that_is_being_issued_reports_so(front: Front, provider: InMemory) -> None:
    front.respond("GetCertificate", refused("RequestInProgressException"))

    failed = await failure(provider, ABSENT)

    assert failed.reason is ErrorReason.BACKEND_ERROR
    assert failed.message.endswith("is not issued yet; complete the validation of its domains")


async def test_an_expired_certificate_is_not_exported(front: Front, provider: InMemory) -> None:
    old = issued("old", until=datetime(2021, 1, 1, tzinfo=UTC))
    front.respond("GetCertificate", json_response({"Certificate": old.certificates.decode()}))

    failed = await failure(provider, ABSENT)

    assert failed.reason is ErrorReason.BACKEND_ERROR
    assert failed.message == f'certificate "{ABSENT}" in eu-west-1 has expired; renew it, or name another one'
    assert front.counts == {"GetCertificate": 1}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        pytest.param("GetCertificate", {"Certificate": "canary"}, id="a certificate that is none"),
        pytest.param("GetCertificate", {}, id="no certificate"),
        pytest.param("ExportCertificate", {"Certificate": "canary", "PrivateKey": "canary"}, id="an export of nothing"),
    ],
)
async def test_a_response_that_is_no_certificate_is_an_error_that_quotes_nothing(
    front: Front, provider: InMemory, private: str, operation: str, body: dict[str, str]
) -> None:
    front.respond(operation, json_response(body))

    failed = await failure(provider, private)

    assert failed.reason is ErrorReason.BACKEND_ERROR
    assert failed.message.endswith(f": {operation} returned something that is not a certificate")


async def test_a_key_that_cannot_be_decrypted_is_an_error_that_quotes_nothing(
    front: Front, provider: InMemory, acm: Any, private: str
) -> None:
    other = acm.export_certificate(CertificateArn=private, Passphrase=b"another passphrase")
    del other["ResponseMetadata"]
    front.respond("ExportCertificate", json_response(other))

    failed = await failure(provider, private)

    assert failed.message.endswith(": ExportCertificate returned something that is not a certificate")


async def test_v1_stores_reach_it_by_their_service(provider: InMemory) -> None:
    found = [info for info in (await provider.handshake()).kinds if info.kind.kind == "CertificateManager"]

    assert [(info.v1_provider_key, info.v1_when) for info in found] == [
        ("aws", SpecCondition("/service", ("CertificateManager",)))
    ]


async def test_maps_and_finds_are_not_offered(provider: InMemory) -> None:
    (info, _cluster) = [info for info in (await provider.handshake()).kinds if "CertificateManager" in info.kind.kind]

    assert info.operations == {
        Operation.GET,
        Operation.NOT_FOUND_SEMANTICS,
        Operation.EXISTS,
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.DELETE,
    }
