"""The effects of a PushSecret's metadata on a parameter: type, key, tier, policies, description, tags; and limits."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from eso_provider_aws.testing.front import Front, refused
from eso_provider_aws.testing.sessions import (
    OURS,
    admin,
    described,
    parameter_outcome,
    parameter_refusal,
    push_parameters,
    tags_at,
    value_of,
)
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import envelope, item
from eso_wire.errors import ErrorReason
from eso_wire.values import PushOutcome

pytestmark = pytest.mark.usefixtures("parameters_ready")
CREATED, UPDATED, UNCHANGED = PushOutcome.CREATED, PushOutcome.UPDATED, PushOutcome.UNCHANGED


@pytest.fixture
def key() -> str:
    return f"/{uuid.uuid4().hex}/db"


def request_of(front: Front) -> dict[str, Any]:
    """The fields of the last PutParameter besides name and value."""
    body = [request.body for request in front.requests if request.operation == "PutParameter"][-1]
    return {name: value for name, value in body.items() if name not in ("Name", "Value", "Tags", "Overwrite")}


POLICY = {"Type": "NoChangeNotification", "Version": "1.0", "Attributes": {"After": "20", "Unit": "Days"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"secretType": "StringList"}, {"Type": "StringList"}, id="type"),
        pytest.param(
            {"secretType": "SecureString"}, {"Type": "SecureString", "KeyId": "alias/aws/ssm"}, id="default key"
        ),
        pytest.param(
            {"secretType": "SecureString", "kmsKeyID": "alias/mine"},
            {"Type": "SecureString", "KeyId": "alias/mine"},
            id="own key",
        ),
        pytest.param({"kmsKeyID": "alias/mine"}, {"Type": "String"}, id="a key only for SecureString"),
        pytest.param({"tier": {"type": "Advanced"}}, {"Type": "String", "Tier": "Advanced"}, id="tier"),
        pytest.param({"tier": {"type": "Standard"}}, {"Type": "String", "Tier": "Standard"}, id="standard tier"),
        pytest.param(
            {"tier": {"type": "Intelligent-Tiering"}},
            {"Type": "String", "Tier": "Intelligent-Tiering"},
            id="tier that AWS chooses",
        ),
        pytest.param(
            {"tier": {"type": "Advanced", "policies": [POLICY]}},
            {
                "Type": "String",
                "Tier": "Advanced",
                "Policies": json.dumps([POLICY], separators=(",", ":"), sort_keys=True),
            },
            id="policies",
        ),
        pytest.param({"description": "mine"}, {"Type": "String", "Description": "mine"}, id="description"),
    ],
)
async def test_metadata_becomes_fields_of_the_request(
    either: Front, provider: InMemory, key: str, spec: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert await parameter_outcome(provider, item(key, b"value", provider_metadata=envelope(**spec))) is CREATED

    assert request_of(either) == {"Description": "secret 'managed-by:external-secrets'"} | expected


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param({"secretTyp": "canary"}, "secretTyp", id="an unknown field"),
        pytest.param({"secretType": "canary"}, "metadata.spec.secretType", id="an unknown type"),
        pytest.param({"tier": {"type": "canary"}}, "metadata.spec.tier.type", id="an unknown tier"),
        pytest.param({"tags": {"managed-by": "canary"}}, "managed-by", id="the mark"),
        pytest.param({"tier": {"policies": [{"Type": "canary"}]}}, "tier.policies", id="policies of the Standard tier"),
    ],
)
async def test_metadata_that_is_not_understood_is_refused_before_anything_is_written(
    front: Front, provider: InMemory, key: str, spec: dict[str, Any], named: str
) -> None:
    refused_push = await parameter_refusal(provider, item(key, b"canary", provider_metadata=envelope(**spec)))

    assert refused_push.reason is ErrorReason.INVALID_REQUEST
    assert named in refused_push.message
    assert "canary" not in refused_push.message
    assert front.count("PutParameter") == 0


# --- a parameter that exists -----------------------------------------------------------------------------------------


async def test_settings_that_the_metadata_does_not_name_stay_as_they_are(
    front: Front, provider: InMemory, ssm: Any, key: str
) -> None:
    ssm.put_parameter(
        Name=key, Value="old", Type="SecureString", Tags=[*OURS, {"Key": "team", "Value": "db"}], Description="theirs"
    )

    assert await parameter_outcome(provider, item(key, b"new")) is UPDATED

    assert (described(ssm, key)["Type"], described(ssm, key)["Description"]) == ("SecureString", "theirs")
    assert tags_at(ssm, key) == {"managed-by": "external-secrets", "team": "db"}
    assert request_of(front) == {"Type": "SecureString", "KeyId": "alias/aws/ssm"}


async def test_a_parameter_is_never_asked_to_go_back_to_the_standard_tier(
    front: Front, provider: InMemory, key: str
) -> None:
    for value, tier in ((b"1", "Advanced"), (b"2", "Standard")):
        await parameter_outcome(provider, item(key, value, provider_metadata=envelope(tier={"type": tier})))

    assert "Tier" not in request_of(front)


@pytest.mark.usefixtures("either")
async def test_another_type_is_written_even_if_the_value_is_equal(provider: InMemory, server: str, key: str) -> None:
    await parameter_outcome(provider, item(key, b"value"))
    secure = item(key, b"value", provider_metadata=envelope(secretType="SecureString"))

    assert await parameter_outcome(provider, secure) is UPDATED

    client = admin("ssm", server)
    assert described(client, key)["Type"] == "SecureString"
    assert value_of(client, key) == "value"
    assert await parameter_outcome(provider, secure) is UNCHANGED


@pytest.mark.parametrize(
    ("code", "named"),
    [
        pytest.param("HierarchyTypeMismatchException", "secretType", id="a type that AWS does not change"),
        pytest.param("InvalidKeyId", "kmsKeyID", id="a key that does not exist"),
        pytest.param("ParameterMaxVersionLimitExceeded", "label", id="a label on the oldest version"),
        pytest.param("ParameterLimitExceeded", "tier.type", id="too many parameters"),
        pytest.param("InvalidPolicyTypeException", "tier.policies", id="a policy that AWS does not know"),
    ],
)
async def test_a_refused_write_reports_what_to_change(
    front: Front, provider: InMemory, key: str, code: str, named: str
) -> None:
    front.respond("PutParameter", refused(code, "canary"))

    refused_push = await parameter_refusal(provider, item(key, b"canary"))

    assert refused_push.reason is ErrorReason.INVALID_REQUEST
    assert refused_push.message.startswith(f'parameter "{key}" in eu-west-1: ')
    assert named in refused_push.message
    assert "canary" not in refused_push.message


async def test_tags_are_brought_in_line_even_if_the_value_is_equal(
    either: Front, provider: InMemory, server: str, key: str
) -> None:
    client = admin("ssm", server)
    await parameter_outcome(provider, item(key, b"value", provider_metadata=envelope(tags={"team": "db", "old": "1"})))
    either.forget()
    other = item(key, b"value", provider_metadata=envelope(tags={"team": "web", "new": "2"}))

    assert await parameter_outcome(provider, other) is UPDATED

    assert tags_at(client, key) == {"managed-by": "external-secrets", "team": "web", "new": "2"}
    assert "PutParameter" not in either.counts
    either.forget()
    assert await parameter_outcome(provider, other) is UNCHANGED
    assert either.counts == {"GetParameter": 1, "ListTagsForResource": 1}


async def test_tags_of_aws_itself_are_left_alone(front: Front, provider: InMemory, key: str, ssm: Any) -> None:
    stack = {"Key": "aws:cloudformation:stack-name", "Value": "s"}
    ssm.put_parameter(Name=key, Value="value", Type="String", Tags=[*OURS, stack, {"Key": "old", "Value": "1"}])

    await parameter_outcome(provider, item(key, b"value", provider_metadata=envelope(tags={})))

    (removal,) = (request.body for request in front.requests if request.operation == "RemoveTagsFromResource")
    assert removal["TagKeys"] == ["old"]


async def test_the_last_of_several_items_that_names_a_field_decides(front: Front, provider: InMemory, key: str) -> None:
    await push_parameters(
        provider,
        item(key, b"1", "a", provider_metadata=envelope(secretType="SecureString", description="first")),
        item(key, b"2", "b", provider_metadata=envelope(description="second")),
        item(key, b"3", "c"),
    )

    expected = {"Type": "SecureString", "KeyId": "alias/aws/ssm", "Description": "second"}
    assert request_of(front) == expected


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "tier", "hint"),
    [
        pytest.param(8193, "Advanced", "Secrets Manager", id="more than the Advanced tier has"),
        pytest.param(8193, "Standard", "Secrets Manager", id="more than any tier has"),
        pytest.param(4097, "Standard", "tier.type Advanced", id="more than the Standard tier has"),
    ],
)
async def test_a_value_that_no_parameter_can_have_is_not_sent(
    front: Front, provider: InMemory, size: int, tier: str, hint: str
) -> None:
    refused_push = await parameter_refusal(
        provider, item("/db", b"x" * size, provider_metadata=envelope(tier={"type": tier}))
    )

    assert refused_push.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert hint in refused_push.message
    assert front.count("PutParameter") == 0


async def test_a_value_that_the_default_tier_refuses_names_the_tier_to_choose(
    front: Front, provider: InMemory, key: str
) -> None:
    text = "Standard tier parameters support a maximum parameter value of 4096 characters."
    front.respond("PutParameter", refused("ValidationException", text))

    refused_push = await parameter_refusal(provider, item(key, b"x" * 4097))

    assert refused_push.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert "Intelligent-Tiering" in refused_push.message


async def test_a_value_between_the_tiers_is_left_to_the_service(front: Front, provider: InMemory, key: str) -> None:
    assert await parameter_outcome(provider, item(key, b"x" * 8192)) is CREATED
    assert front.count("PutParameter") == 1


@pytest.mark.parametrize(
    ("value", "word"),
    [pytest.param(b"", "empty", id="nothing"), pytest.param(b"\xff\xfe", "binary", id="bytes that are no text")],
)
async def test_a_value_that_parameter_store_cannot_keep_is_refused_with_the_reason(
    front: Front, provider: InMemory, key: str, value: bytes, word: str
) -> None:
    refused_push = await parameter_refusal(provider, item(key, value))

    assert refused_push.reason is ErrorReason.INVALID_REQUEST
    assert word in refused_push.message
    assert front.count("PutParameter") == 0


async def test_a_denied_write_names_the_action_to_allow(front: Front, provider: InMemory, key: str) -> None:
    front.respond("PutParameter", refused("AccessDeniedException", "not authorized to perform: ssm:AddTagsToResource"))

    refused_push = await parameter_refusal(provider, item(key, b"canary"))

    assert refused_push.reason is ErrorReason.PERMISSION_DENIED
    expected = f'parameter "{key}" in eu-west-1: PutParameter is denied (HTTP 400); allow ssm:AddTagsToResource'
    assert refused_push.message == expected
