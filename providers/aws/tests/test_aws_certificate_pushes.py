"""Pushing certificates: one import for each remote key, the same ARN for ever, and only what carries our mark."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from eso_api.values import SecretBytes
from eso_provider_aws.provider import PROVIDER, CertificateManager
from eso_provider_aws.testing.front import Front, refused
from eso_provider_aws.testing.sessions import Issued, admin, context, correct_responses, issued, json_response, tags
from eso_sdk.testing import InMemory
from eso_sdk.testing.moto import Moto
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteBatch, DeleteItem, GetItem, PushBatch, PushItem, PushOutcome, RemoteRef, SourceSecret

CA = issued("authority")
FIRST, SECOND = issued("app.example", CA), issued("app.example", CA)
TLS = SourceSecret("kubernetes.io/tls")
WRITES = ("ImportCertificate", "AddTagsToCertificate", "RemoveTagsFromCertificate", "DeleteCertificate")


@dataclass(frozen=True, slots=True)
class Account:
    """One account behind the front, and a remote key that no other test uses."""

    provider: InMemory
    front: Front
    acm: Any
    key: str

    async def push(
        self, payload: Mapping[str, SecretBytes] | SecretBytes, spec: Mapping[str, Any] | None = None, **item: Any
    ) -> PushOutcome | ProviderError:
        remote = item.pop("remote", RemoteRef(self.key))
        (result,) = await self.provider.push(
            context(CertificateManager, **(spec or {})), PushBatch((PushItem("1", remote, payload, **item),), TLS)
        )
        return result.outcome

    async def delete(self, **item: Any) -> bool | ProviderError:
        batch = DeleteBatch((DeleteItem("1", RemoteRef(self.key), **item),))
        (result,) = await self.provider.delete(context(CertificateManager), batch)
        return result.error or result.existed

    async def exists(self) -> bool:
        (result,) = await self.provider.check(context(CertificateManager), [GetItem("1", RemoteRef(self.key))])
        assert result.error is None
        return result.exists

    def found(self) -> dict[str, dict[str, str]]:
        """The certificates with our remote key, and their tags."""
        listed = self.acm.list_certificates(MaxItems=1000)["CertificateSummaryList"]
        arns = [each["CertificateArn"] for each in listed]
        all_tags = {arn: tags(self.acm.list_tags_for_certificate(CertificateArn=arn).get("Tags", [])) for arn in arns}
        return {arn: each for arn, each in all_tags.items() if each.get("external-secrets-remote-key") == self.key}

    def arn(self) -> str:
        (arn,) = self.found()
        return arn

    def leaf(self, arn: str) -> str:
        return str(self.acm.get_certificate(CertificateArn=arn)["Certificate"])

    def import_(self, made: Issued, **more: str) -> str:
        """Import a certificate as another client would, with the tag of our remote key."""
        listed = [
            {"Key": key, "Value": value} for key, value in ({"external-secrets-remote-key": self.key} | more).items()
        ]
        response = self.acm.import_certificate(Certificate=_pem(made), PrivateKey=made.key_pem, Tags=listed)
        return str(response["CertificateArn"])

    def writes(self) -> dict[str, int]:
        return {name: count for name, count in self.front.counts.items() if name in WRITES}


@pytest.fixture
def account(either: Front, provider: InMemory, server: str) -> Account:
    return Account(provider, either, correct_responses(either, server), f"app/{uuid.uuid4().hex}")


def _pem(made: Issued) -> bytes:
    return made.certificate.public_bytes(Encoding.PEM)


def failed(outcome: object) -> ProviderError:
    assert isinstance(outcome, ProviderError)
    return outcome


def envelope(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata", "spec": spec}


# --- push ------------------------------------------------------------------------------------------------------------


async def test_a_certificate_keeps_its_arn_and_tags_when_it_is_replaced(account: Account) -> None:
    assert await account.push(FIRST.secret) is PushOutcome.CREATED
    arn = account.arn()
    assert account.leaf(arn).strip().encode() == _pem(FIRST).strip()

    assert await account.push(SECOND.secret) is PushOutcome.UPDATED

    assert account.found() == {arn: {"managed-by": "external-secrets", "external-secrets-remote-key": account.key}}
    assert account.leaf(arn).strip().encode() == _pem(SECOND).strip()


@pytest.mark.parametrize("made", [pytest.param(FIRST, id="with a chain"), pytest.param(CA, id="without a chain")])
async def test_an_unchanged_certificate_is_not_imported_again(account: Account, made: Issued) -> None:
    await account.push(made.secret)
    account.front.forget()

    assert await account.push(made.secret) is PushOutcome.UNCHANGED

    assert account.writes() == {}


async def test_a_chain_that_differs_is_imported(account: Account) -> None:
    await account.push(FIRST.secret)
    arn = account.arn()
    alone = Issued(FIRST.certificate, FIRST.key)

    assert await account.push(alone.secret) is PushOutcome.UPDATED

    assert account.arn() == arn
    assert account.front.count("ImportCertificate") == 2


async def test_pushes_that_come_together_make_one_certificate(account: Account) -> None:
    outcomes = await asyncio.gather(*(account.push(FIRST.secret) for _ in range(4)))

    assert sorted(map(str, outcomes)) == ["CREATED", "UNCHANGED", "UNCHANGED", "UNCHANGED"]
    assert account.writes() == {"ImportCertificate": 1}


async def test_prefix_is_part_of_the_remote_key(account: Account) -> None:
    plain = account.key.removeprefix("app/")

    await account.push(FIRST.secret, {"prefix": "app/"}, remote=RemoteRef(plain))

    assert await account.push(FIRST.secret) is PushOutcome.UNCHANGED


async def test_tags_of_the_metadata_replace_all_but_ours(account: Account) -> None:
    await account.push(FIRST.secret, provider_metadata=envelope(tags={"team": "a", "stage": "test"}))
    ours = {"managed-by": "external-secrets", "external-secrets-remote-key": account.key}
    assert account.found()[account.arn()] == ours | {"team": "a", "stage": "test"}

    outcome = await account.push(FIRST.secret, provider_metadata=envelope(tags={"team": "b"}))

    assert outcome is PushOutcome.UPDATED
    assert account.found()[account.arn()] == ours | {"team": "b"}
    assert account.front.count("ImportCertificate") == 1


async def test_without_tags_in_the_metadata_tags_of_others_stay(account: Account) -> None:
    await account.push(FIRST.secret)
    account.acm.add_tags_to_certificate(CertificateArn=account.arn(), Tags=[{"Key": "cost", "Value": "12"}])

    assert await account.push(FIRST.secret) is PushOutcome.UNCHANGED

    assert account.found()[account.arn()]["cost"] == "12"


async def test_tags_of_aws_are_never_removed(account: Account) -> None:
    await account.push(FIRST.secret)
    listed = {"managed-by": "external-secrets", "external-secrets-remote-key": account.key, "aws:stack": "a", "b": "c"}
    result = {"Tags": [{"Key": key, "Value": value} for key, value in listed.items()]}
    account.front.respond("ListTagsForCertificate", json_response(result))

    await account.push(FIRST.secret, provider_metadata=envelope(tags={}))

    (removed,) = [
        request.body["Tags"] for request in account.front.requests if request.operation.startswith("RemoveTags")
    ]
    assert removed == [{"Key": "b", "Value": "c"}]


# --- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark",
    [pytest.param({}, id="no mark"), pytest.param({"managed-by": "terraform"}, id="the mark of another owner")],
)
async def test_a_certificate_without_our_mark_is_neither_replaced_nor_deleted(
    account: Account, mark: dict[str, str]
) -> None:
    arn = account.import_(FIRST, **mark)

    pushed, deleted = failed(await account.push(SECOND.secret)), failed(await account.delete())

    assert pushed.reason is deleted.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert f'certificate "{arn}" in eu-west-1 with the remote key "{account.key}" exists' in pushed.message
    assert account.writes() == {}
    assert await account.exists()


async def test_the_mark_is_the_owner_token_of_the_push(account: Account) -> None:
    await account.push(FIRST.secret, owner_token="cluster-a")

    refused_push = failed(await account.push(SECOND.secret))

    assert refused_push.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert account.found()[account.arn()]["managed-by"] == "cluster-a"
    assert await account.delete(owner_token="cluster-a") is True


async def test_the_smallest_arn_is_written_if_several_certificates_have_our_mark(
    account: Account,
) -> None:
    mark = {"managed-by": "external-secrets"}
    arns = sorted(account.import_(FIRST, **mark) for _ in range(3))

    assert await account.push(SECOND.secret) is PushOutcome.UPDATED

    assert [account.leaf(arn).strip().encode() == _pem(SECOND).strip() for arn in arns] == [True, False, False]


# --- delete and exists -----------------------------------------------------------------------------------------------


async def test_a_deleted_certificate_is_gone_and_deleting_it_again_is_no_error(account: Account) -> None:
    await account.push(FIRST.secret)
    assert await account.exists()

    assert await account.delete() is True

    assert await account.delete() is False
    assert not await account.exists()
    assert account.found() == {}


async def test_a_certificate_in_use_reports_what_to_do(account: Account) -> None:
    await account.push(FIRST.secret)
    account.front.respond("DeleteCertificate", refused("ResourceInUseException"))

    error = failed(await account.delete())

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert error.message == (
        f'certificate "{account.arn()}" in eu-west-1 is in use; remove it from the load balancers and others that use'
        " it"
    )


# --- the search ------------------------------------------------------------------------------------------------------


async def test_a_search_that_does_not_know_our_import_yet_makes_no_second_one(account: Account) -> None:
    account.front.respond("GetResources", json_response({"ResourceTagMappingList": []}))
    await account.push(FIRST.secret)

    assert await account.push(SECOND.secret) is PushOutcome.UPDATED

    assert len(account.found()) == 1


async def test_a_search_that_still_knows_what_was_deleted_does_not_hinder_a_push(account: Account) -> None:
    await account.push(FIRST.secret)
    gone = account.arn()
    account.acm.delete_certificate(CertificateArn=gone)
    account.front.respond(
        "GetResources", json_response({"ResourceTagMappingList": [{"ResourceARN": gone, "Tags": []}]})
    )

    assert await account.push(FIRST.secret) is PushOutcome.CREATED

    assert account.arn() != gone


async def test_all_pages_of_the_search_are_read(account: Account) -> None:
    arn = account.import_(FIRST, **{"managed-by": "external-secrets"})
    second = {"ResourceTagMappingList": [{"ResourceARN": arn, "Tags": []}], "PaginationToken": ""}
    first = {"ResourceTagMappingList": [], "PaginationToken": "more"}
    account.front.respond(
        "GetResources",
        lambda request: json_response(second if request.body.get("PaginationToken") == "more" else first),
    )

    assert await account.push(FIRST.secret) is not PushOutcome.CREATED
    assert account.front.count("GetResources") == 2


async def test_the_search_of_moto_finds_what_was_pushed(front: Front, provider: InMemory, moto: Moto) -> None:
    account = Account(provider, front, admin("acm", moto.url), f"app/{uuid.uuid4().hex}")
    await account.push(FIRST.secret, {"prefix": ""})

    async with InMemory(PROVIDER) as other:
        assert await Account(other, front, account.acm, account.key).delete() is True

    assert account.found() == {}
    request = next(request for request in front.requests if request.operation == "GetResources")
    assert request.body == {
        "ResourceTypeFilters": ["acm:certificate"],
        "TagFilters": [{"Key": "external-secrets-remote-key", "Values": [account.key]}],
    }


async def test_a_denied_search_names_the_action(account: Account) -> None:
    account.front.respond("GetResources", refused("AccessDeniedException"))

    error = failed(await account.push(FIRST.secret))

    assert error.reason is ErrorReason.PERMISSION_DENIED
    assert error.message.endswith("GetResources is denied (HTTP 400); allow tag:GetResources")


# --- what cannot be pushed -------------------------------------------------------------------------------------------


def _with(**changes: bytes | None) -> dict[str, SecretBytes]:
    data = {name.replace("_", "."): value for name, value in changes.items()}
    rest = {name: value for name, value in FIRST.secret.items() if name not in data}
    return rest | {name: SecretBytes(value) for name, value in data.items() if value is not None}


_LOCKED = FIRST.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))


@pytest.mark.parametrize(
    ("payload", "item", "text"),
    [
        pytest.param(SecretBytes(b"a"), {"secret_key": "tls.crt"}, "remove secretKey", id="one key of the Secret"),
        pytest.param(_with(tls_crt=None), {}, "has no tls.crt; push a kubernetes.io/tls Secret", id="no certificate"),
        pytest.param(_with(tls_key=b""), {}, "has no tls.key; push a kubernetes.io/tls Secret", id="an empty key"),
        pytest.param(_with(tls_crt=b"canary"), {}, "is not a certificate in PEM", id="a certificate that is none"),
        pytest.param(_with(tls_key=b"canary"), {}, "is not a private key in PEM without a passphrase", id="no key"),
        pytest.param(_with(tls_key=_LOCKED), {}, "is not a private key in PEM without a passphrase", id="a locked key"),
        pytest.param(
            _with(tls_key=SECOND.key_pem),
            {},
            "does not belong to the first certificate of tls.crt",
            id="the key of another certificate",
        ),
        pytest.param(
            issued("old", until=datetime(2021, 1, 1, tzinfo=UTC)).secret,
            {},
            "has expired or is not valid yet",
            id="expired",
        ),
        pytest.param(
            FIRST.secret, {"remote": RemoteRef("app", property="a")}, "has no properties to write", id="a property"
        ),
        pytest.param(FIRST.secret, {"remote": RemoteRef("app#1")}, "it becomes a tag", id="a key that no tag can have"),
        pytest.param(
            FIRST.secret,
            {"provider_metadata": envelope(tags={"external-secrets-remote-key": "a"})},
            "which is set by External Secrets; remove it",
            id="the tag of the remote key",
        ),
        pytest.param(
            FIRST.secret,
            {"provider_metadata": envelope(tags={"managed-by": "a"})},
            "which is set by External Secrets; remove it",
            id="the mark",
        ),
        pytest.param(
            FIRST.secret,
            {"provider_metadata": envelope(kmsKeyID="a")},
            "unknown field",
            id="metadata of another service",
        ),
    ],
)
async def test_a_payload_that_cannot_be_a_certificate_is_refused_before_any_call(
    account: Account, payload: Any, item: dict[str, Any], text: str
) -> None:
    error = failed(await account.push(payload, **item))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert text in error.message
    assert "canary" not in error.message
    assert not account.front.requests
