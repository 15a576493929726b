"""Pushes to Parameter Store, made as by the operator, and their results."""

from __future__ import annotations

from typing import Any, Final

from eso_provider_aws.provider import ParameterStore
from eso_provider_aws.testing import pushes
from eso_provider_aws.testing.sessions import context, tags
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import PushItem, PushOutcome, PushResult

MARK: Final = {"managed-by": "external-secrets"}
OURS: Final = [{"Key": "managed-by", "Value": "external-secrets"}]


async def push(provider: InMemory, *items: PushItem, **spec: Any) -> list[PushResult]:
    return await pushes.push(provider, context(ParameterStore, **spec), *items)


async def outcome(provider: InMemory, one: PushItem) -> PushOutcome:
    return await pushes.outcome(provider, context(ParameterStore), one)


async def refusal(provider: InMemory, one: PushItem) -> ProviderError:
    return await pushes.refusal(provider, context(ParameterStore), one)


async def delete(provider: InMemory, key: str, *parts: str, **more: Any) -> list[bool]:
    return await pushes.delete(provider, context(ParameterStore), key, *parts, **more)


def value_of(client: Any, key: str) -> str:
    return str(client.get_parameter(Name=key, WithDecryption=True)["Parameter"]["Value"])


def tags_at(client: Any, key: str) -> dict[str, str]:
    return tags(client.list_tags_for_resource(ResourceType="Parameter", ResourceId=key)["TagList"])


def described(client: Any, key: str) -> dict[str, Any]:
    filters = [{"Key": "Name", "Option": "Equals", "Values": [key]}]
    (found,) = client.describe_parameters(ParameterFilters=filters)["Parameters"]
    return dict(found)


def parameter_exists(client: Any, key: str) -> bool:
    return not client.get_parameters(Names=[key])["InvalidParameters"]
