"""The effects of a PushSecret's metadata on a secret: tags, description, format, key, policy, replicas."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, refused
from eso_provider_aws.testing.sessions import admin, context, outcome, refusal, tags
from eso_sdk.provider import served_kind
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import delete_parts, envelope, item, push_items
from eso_wire.errors import ErrorReason
from eso_wire.values import Credential, CredentialKind, PushItem, PushOutcome

CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED
MARK = {"managed-by": "external-secrets"}
OURS = [{"Key": "managed-by", "Value": "external-secrets"}]
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "*"}]}
SOURCE = {"kind": "ConfigMap", "name": "policies", "key": "db.json"}
POINTER = "/spec/resourcePolicy/policySourceRef"
READS = {"DescribeSecret": 1, "GetSecretValue": 1}


@pytest.fixture
def name() -> str:
    return f"metadata/{uuid.uuid4().hex}"


def _client(server: str) -> Any:
    return admin("secretsmanager", server)


def _item(name: str, value: bytes = b"x", **spec: Any) -> PushItem:
    return item(name, value, provider_metadata=envelope(**spec))


def _with_policy(name: str, policy: Any = None, part: str = "", **more: Any) -> PushItem:
    text = policy if isinstance(policy, bytes) else json.dumps(policy or POLICY).encode()
    spec = {"policySourceRef": SOURCE, **more}
    resolved = (Credential(POINTER, SecretBytes(text)),)
    return item(name, b"x", part, provider_metadata=envelope(resourcePolicy=spec), resolved=resolved)


# --- form ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        pytest.param(envelope(tagz={}), "unknown field `tagz`", id="field of the spec"),
        pytest.param({**envelope(), "more": 1}, "unknown field `more`", id="field of the envelope"),
        pytest.param(
            envelope(resourcePolicy={"policySourceRef": {**SOURCE, "optional": True}}), "optional", id="field of a ref"
        ),
        pytest.param({**envelope(), "kind": "Other"}, "kind PushSecretMetadata", id="another kind"),
        pytest.param({**envelope(), "apiVersion": "v1"}, "apiVersion kubernetes", id="another apiVersion"),
        pytest.param({"tags": {"a": "b"}}, "expected form", id="no envelope"),
        pytest.param(envelope(secretPushFormat="CANARY"), "secretPushFormat", id="unknown format"),
        pytest.param(envelope(tags={"a": 1}), "Expected `str`", id="tag that is no text"),
        pytest.param(envelope(tags={"managed-by": "CANARY"}), "managed-by", id="the mark of ownership"),
        pytest.param(
            envelope(tags={"external-secrets-resource-policy": "CANARY"}), "resource-policy", id="the mark of a policy"
        ),
        pytest.param(envelope(resourcePolicy={}), "policySourceRef", id="policy without a source"),
        pytest.param(
            envelope(resourcePolicy={"policySourceRef": SOURCE}), "did not send key", id="policy that was not sent"
        ),
    ],
)
async def test_metadata_that_cannot_be_followed_is_refused_before_any_write(
    front: Front, provider: InMemory, name: str, metadata: dict[str, Any], text: str
) -> None:
    error = await refusal(provider, context(SecretsManager), item(name, b"x", provider_metadata=metadata))

    assert text in error.message
    assert name in error.message
    assert "CANARY" not in error.message
    assert front.counts == {"DescribeSecret": 1}


def test_the_operator_is_asked_to_follow_the_source_of_a_policy() -> None:
    (path,) = served_kind(SecretsManager).metadata_references

    assert (path.pattern, path.kind) == (POINTER, CredentialKind.OBJECT_KEY)


# --- creation --------------------------------------------------------------------------------------------------------


async def test_a_new_secret_gets_everything_with_one_call(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    spec: dict[str, Any] = {
        "tags": {"team": "red"},
        "description": "of the team",
        "secretPushFormat": "string",
        "kmsKeyId": "alias/team",
        "replicationLocations": ["us-east-1"],
    }

    assert await outcome(provider, context(SecretsManager), _item(name, **spec)) is CREATED

    assert front.counts == {"DescribeSecret": 1, "CreateSecret": 1}
    described = secrets_manager.describe_secret(SecretId=name)
    assert tags(described["Tags"]) == {"team": "red", **MARK}
    assert (described["Description"], described["KmsKeyId"]) == ("of the team", "alias/team")
    assert front.requests[-1].body["AddReplicaRegions"] == [{"Region": "us-east-1", "KmsKeyId": "alias/team"}]
    assert secrets_manager.get_secret_value(SecretId=name)["SecretString"] == "x"


# --- form of the value -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "member"),
    [
        pytest.param({}, "SecretString", id="kept when none is named"),
        pytest.param({"secretPushFormat": "string"}, "SecretString", id="string"),
        pytest.param({"secretPushFormat": "binary"}, "SecretBinary", id="binary"),
    ],
)
@pytest.mark.usefixtures("front")
async def test_the_form_of_a_value_follows_the_metadata(
    provider: InMemory, secrets_manager: Any, name: str, metadata: dict[str, str], member: str
) -> None:
    secrets_manager.create_secret(Name=name, SecretString="old", Tags=OURS)

    await outcome(provider, context(SecretsManager), _item(name, b"new", **metadata))

    assert secrets_manager.get_secret_value(SecretId=name)[member] in ("new", b"new")


async def test_a_form_that_differs_is_corrected_once(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    secrets_manager.create_secret(Name=name, SecretBinary=b"x", Tags=OURS)
    call = context(SecretsManager)

    outcomes = [await outcome(provider, call, _item(name, secretPushFormat="string")) for _ in range(2)]

    assert outcomes == [UPDATED, UNCHANGED]
    assert secrets_manager.get_secret_value(SecretId=name)["SecretString"] == "x"
    assert front.count("PutSecretValue") == 1


async def test_bytes_are_not_stored_as_text(front: Front, provider: InMemory, name: str) -> None:
    error = await refusal(provider, context(SecretsManager), _item(name, b"\xff", secretPushFormat="string"))

    assert error.reason is ErrorReason.INVALID_REQUEST
    assert "secretPushFormat is string" in error.message
    assert front.count("CreateSecret") == 0


# --- tags ------------------------------------------------------------------------------------------------------------


async def test_tags_are_brought_in_line_when_the_metadata_names_them(
    either: Front, provider: InMemory, server: str, name: str
) -> None:
    client = _client(server)
    before = [{"Key": "old", "Value": "1"}, {"Key": "team", "Value": "blue"}, {"Key": "aws:stack", "Value": "x"}]
    client.create_secret(Name=name, SecretBinary=b"x", Tags=OURS + before)
    call = context(SecretsManager)

    first = await outcome(provider, call, _item(name, tags={"team": "red"}))
    assert either.counts == READS | {"TagResource": 1, "UntagResource": 1}
    either.forget()
    second = await outcome(provider, call, _item(name, tags={"team": "red"}))

    assert (first, second) == (UPDATED, UNCHANGED)
    assert either.counts == READS
    assert tags(client.describe_secret(SecretId=name)["Tags"]) == {"team": "red", "aws:stack": "x", **MARK}


async def test_tags_are_left_alone_when_the_metadata_does_not_name_them(
    either: Front, provider: InMemory, server: str, name: str
) -> None:
    _client(server).create_secret(Name=name, SecretBinary=b"x", Tags=[*OURS, {"Key": "team", "Value": "blue"}])

    assert await outcome(provider, context(SecretsManager), _item(name, description="x")) is UNCHANGED

    assert either.counts == READS


@pytest.mark.usefixtures("front")
async def test_the_last_item_that_names_a_metadata_field_decides(
    provider: InMemory, secrets_manager: Any, name: str
) -> None:
    items = [
        item(name, b"1", "a", provider_metadata=envelope(tags={"team": "red"}, description="first")),
        item(name, b"2", "b", provider_metadata=envelope(description="second")),
        item(name, b"3", "c"),
    ]

    await push_items(provider, context(SecretsManager), *items)

    described = secrets_manager.describe_secret(SecretId=name)
    assert tags(described["Tags"]) == {"team": "red", **MARK}
    assert described["Description"] == "second"


# --- replicas --------------------------------------------------------------------------------------------------------


async def test_replicas_are_brought_in_line_when_the_metadata_names_them(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    replicas = [{"Region": "us-east-1"}, {"Region": "us-east-2"}]
    secrets_manager.create_secret(Name=name, SecretBinary=b"x", Tags=OURS, AddReplicaRegions=replicas)
    call = context(SecretsManager)

    unnamed = await outcome(provider, call, _item(name))
    first = await outcome(provider, call, _item(name, replicationLocations=["us-east-2", "eu-west-3"]))
    second = await outcome(provider, call, _item(name, replicationLocations=["us-east-2", "eu-west-3"]))

    assert (unnamed, first, second) == (UNCHANGED, UPDATED, UNCHANGED)
    assert (front.count("ReplicateSecretToRegions"), front.count("RemoveRegionsFromReplication")) == (1, 1)
    status = secrets_manager.describe_secret(SecretId=name)["ReplicationStatus"]
    assert {replica["Region"] for replica in status} == {"us-east-2", "eu-west-3"}


# --- resource policy -------------------------------------------------------------------------------------------------


async def test_a_policy_is_set_kept_changed_and_revoked(
    either: Front, provider: InMemory, server: str, name: str
) -> None:
    client = _client(server)
    call = context(SecretsManager)
    other = {**POLICY, "Statement": []}

    assert await outcome(provider, call, _with_policy(name)) is CREATED
    assert either.counts == {"DescribeSecret": 1, "CreateSecret": 1, "PutResourcePolicy": 1}
    assert json.loads(client.get_resource_policy(SecretId=name)["ResourcePolicy"]) == POLICY
    either.forget()
    rewritten = json.dumps(POLICY, indent=4, sort_keys=True).encode()
    assert await outcome(provider, call, _with_policy(name, rewritten)) is UNCHANGED
    assert either.counts == READS | {"GetResourcePolicy": 1}
    assert await outcome(provider, call, _with_policy(name, other)) is UPDATED
    assert json.loads(client.get_resource_policy(SecretId=name)["ResourcePolicy"]) == other

    assert await outcome(provider, call, _item(name, description="no policy any more")) is UPDATED

    assert "ResourcePolicy" not in client.get_resource_policy(SecretId=name)
    assert tags(client.describe_secret(SecretId=name)["Tags"]) == MARK


async def test_a_policy_that_we_did_not_set_stays(either: Front, provider: InMemory, server: str, name: str) -> None:
    client = _client(server)
    client.create_secret(Name=name, SecretBinary=b"x", Tags=OURS)
    client.put_resource_policy(SecretId=name, ResourcePolicy=json.dumps(POLICY))

    assert await outcome(provider, context(SecretsManager), _item(name, tags={})) is UNCHANGED

    assert either.counts == READS
    assert json.loads(client.get_resource_policy(SecretId=name)["ResourcePolicy"]) == POLICY


@pytest.mark.usefixtures("front")
async def test_a_policy_that_replaced_ours_stays(provider: InMemory, secrets_manager: Any, name: str) -> None:
    call = context(SecretsManager)
    await outcome(provider, call, _with_policy(name))
    secrets_manager.put_resource_policy(SecretId=name, ResourcePolicy='{"Version":"2012-10-17","Statement":[]}')

    await outcome(provider, call, _item(name))

    assert "ResourcePolicy" in secrets_manager.get_resource_policy(SecretId=name)
    assert tags(secrets_manager.describe_secret(SecretId=name)["Tags"]) == MARK


@pytest.mark.parametrize("part", [pytest.param("", id="the whole value"), pytest.param("db", id="a property")])
async def test_an_entry_whose_metadata_is_removed_revokes_its_policy(
    provider: InMemory, either: Front, server: str, name: str, part: str
) -> None:
    client, call = _client(server), context(SecretsManager)
    await outcome(provider, call, _with_policy(name, part=part))
    assert "ResourcePolicy" in client.get_resource_policy(SecretId=name)
    either.forget()

    assert await outcome(provider, call, item(name, b"x", part)) is UPDATED

    assert either.counts == READS | {"GetResourcePolicy": 1, "DeleteResourcePolicy": 1, "UntagResource": 1}
    assert "ResourcePolicy" not in client.get_resource_policy(SecretId=name)
    assert tags(client.describe_secret(SecretId=name)["Tags"]) == MARK
    assert await outcome(provider, call, item(name, b"x", part)) is UNCHANGED


async def test_an_entry_without_metadata_for_another_property_leaves_the_policy_alone(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)
    await outcome(provider, call, _with_policy(name, part="db"))
    await outcome(provider, call, item(name, b"x", "other"))
    front.forget()

    assert await outcome(provider, call, item(name, b"x", "other")) is UNCHANGED

    assert front.counts == READS
    assert "ResourcePolicy" in secrets_manager.get_resource_policy(SecretId=name)


@pytest.mark.usefixtures("front")
async def test_the_deletion_of_a_property_revokes_the_policy_of_its_entry(
    provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)
    await outcome(provider, call, _with_policy(name, part="db"))
    await outcome(provider, call, item(name, b"x", "other"))

    assert await delete_parts(provider, call, name, "db") == [True]

    assert "ResourcePolicy" not in secrets_manager.get_resource_policy(SecretId=name)


@pytest.mark.usefixtures("front")
async def test_a_policy_whose_mark_names_no_property_is_revoked_by_a_push_of_the_whole_value(
    provider: InMemory, secrets_manager: Any, name: str
) -> None:
    """Earlier versions wrote such marks."""
    call = context(SecretsManager)
    await outcome(provider, call, _with_policy(name))
    mark = "external-secrets-resource-policy"
    digest = tags(secrets_manager.describe_secret(SecretId=name)["Tags"])[mark].partition("/")[0]
    secrets_manager.tag_resource(SecretId=name, Tags=[{"Key": mark, "Value": digest}])

    await outcome(provider, call, item(name, b"x"))

    assert "ResourcePolicy" not in secrets_manager.get_resource_policy(SecretId=name)


async def test_named_tags_leave_the_mark_of_a_policy_alone(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)
    await outcome(provider, call, _with_policy(name))
    spec = {"resourcePolicy": {"policySourceRef": SOURCE}, "tags": {"team": "red"}}
    resolved = (Credential(POINTER, SecretBytes(json.dumps(POLICY).encode())),)
    both = item(name, b"x", provider_metadata=envelope(**spec), resolved=resolved)

    assert [await outcome(provider, call, both) for _ in range(2)] == [UPDATED, UNCHANGED]

    assert front.count("UntagResource") == 0
    assert "external-secrets-resource-policy" in tags(secrets_manager.describe_secret(SecretId=name)["Tags"])


async def test_a_policy_that_could_not_be_set_is_set_by_the_next_push(
    front: Front, provider: InMemory, secrets_manager: Any, name: str
) -> None:
    call = context(SecretsManager)
    front.respond("PutResourcePolicy", refused("PublicPolicyException"))
    error = await refusal(provider, call, _with_policy(name, blockPublicPolicy=True))
    assert "PutResourcePolicy" in error.message
    assert [
        request.body["BlockPublicPolicy"] for request in front.requests if request.operation == "PutResourcePolicy"
    ] == [True]
    front.pass_on()

    assert await outcome(provider, call, _with_policy(name)) is UPDATED

    assert json.loads(secrets_manager.get_resource_policy(SecretId=name)["ResourcePolicy"]) == POLICY


async def test_a_policy_that_is_not_a_json_object_is_rejected(front: Front, provider: InMemory, name: str) -> None:
    error = await refusal(provider, context(SecretsManager), _with_policy(name, b"CANARY"))

    assert 'key "db.json" of ConfigMap "policies" is not a JSON object' in error.message
    assert front.count("CreateSecret") == 0
