"""Finding parameters: by hierarchy, by listing where that is denied, by tags."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from eso_provider_aws.provider import ParameterStore
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, FindQuery

pytestmark = pytest.mark.usefixtures("parameters_ready")
DENIED = refused("AccessDeniedException")


def store(client: Any, *keys: str, **tags: str) -> None:
    listed = [{"Key": name, "Value": value} for name, value in tags.items()]
    for key in keys:
        client.put_parameter(Name=key, Value=f"value of {key}", Type="SecureString", Tags=listed)


async def find(provider: InMemory, call: Context, query: FindQuery) -> dict[str, str]:
    return {found.key: found.value.reveal().decode() for found in await provider.find(call, query)}


def values(*keys: str) -> dict[str, str]:
    return {key: f"value of {key}" for key in keys}


@pytest.fixture
def root() -> str:
    return f"/{uuid.uuid4().hex}"


async def test_a_hierarchy_is_read_with_its_values_ten_at_a_time(
    either: Front, provider: InMemory, server: str, root: str
) -> None:
    keys = [f"{root}/app/{number:02}" for number in range(25)]
    store(admin("ssm", server), *keys, f"{root}/application", f"{root}-other/00")

    found = await find(provider, context(ParameterStore), FindQuery(path=f"{root}/app", name_regexp="[02468]$"))

    assert found == values(*(key for key in keys if key[-1] in "02468"))
    assert either.counts == {"GetParametersByPath": 3}


@pytest.mark.parametrize(
    "path", [pytest.param("{}", id="as written"), pytest.param("{}/", id="with a slash at the end")]
)
@pytest.mark.usefixtures("front")
async def test_levels_below_the_path_are_found_too(provider: InMemory, ssm: Any, root: str, path: str) -> None:
    store(ssm, f"{root}/a", f"{root}/b/c/d")

    query = FindQuery(path=path.format(root), name_regexp=".")

    assert await find(provider, context(ParameterStore), query) == values(f"{root}/a", f"{root}/b/c/d")


@pytest.mark.usefixtures("front")
async def test_a_path_may_lack_its_first_slash(provider: InMemory, ssm: Any, root: str) -> None:
    store(ssm, f"{root}/a")

    query = FindQuery(path=root.removeprefix("/"))

    assert await find(provider, context(ParameterStore), query) == values(f"{root}/a")


@pytest.mark.parametrize(
    "denied",
    [pytest.param(False, id="by hierarchy"), pytest.param(True, id="by listing because hierarchies are denied")],
)
async def test_names_without_a_hierarchy_are_found_from_the_root(
    front: Front, provider: InMemory, ssm: Any, root: str, *, denied: bool
) -> None:
    plain = root.removeprefix("/")
    store(ssm, plain, f"{root}/below")
    if denied:
        front.respond("GetParametersByPath", DENIED)

    found = await find(provider, context(ParameterStore), FindQuery(name_regexp=plain))

    assert found == values(plain, f"{root}/below")


async def test_the_prefix_of_the_store_is_not_put_before_what_is_found(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    store(ssm, f"{root}/a")
    del front

    found = await find(provider, context(ParameterStore, prefix="/elsewhere/"), FindQuery(path=root))

    assert found == values(f"{root}/a")


@pytest.mark.usefixtures("either")
async def test_a_find_without_a_match_is_empty(provider: InMemory, root: str) -> None:
    assert await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp=".")) == {}


async def test_a_pattern_that_is_none_is_refused_before_any_call(front: Front, provider: InMemory) -> None:
    with pytest.raises(ProviderError) as wrong:
        await find(provider, context(ParameterStore), FindQuery(name_regexp="("))

    assert wrong.value.reason is ErrorReason.INVALID_REQUEST
    assert front.counts == {}


# --- where hierarchies are denied ------------------------------------------------------------------------------------


async def test_where_hierarchies_are_denied_names_are_listed_and_values_read_in_batches(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    keys = [f"{root}/{number:02}" for number in range(25)]
    store(ssm, *keys, f"{root}/other")
    front.respond("GetParametersByPath", DENIED)

    found = await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp=r"\d\d$"))

    assert found == values(*keys)
    assert (front.count("GetParametersByPath"), front.count("GetParameters")) == (1, 3)
    assert {request.body["MaxResults"] for request in front.requests if request.operation == "DescribeParameters"} == {
        50
    }


async def test_batches_are_full_even_if_few_names_of_each_page_match(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    keys = [f"{root}/{number:02}" for number in range(40)]
    store(ssm, *keys)
    front.respond("GetParametersByPath", DENIED)

    found = await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp="5$|7$"))

    assert found == values(*(key for key in keys if key[-1] in "57"))
    assert front.count("GetParameters") == 1


async def test_a_key_of_kms_that_is_denied_midway_loses_and_repeats_nothing(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    keys = [f"{root}/{number:02}" for number in range(15)]
    store(ssm, *keys, f"{root}/foreign")
    denied = refused("AccessDeniedException", "the ciphertext refers to a KMS key")

    def later(request: RecordedRequest) -> StubResponse | None:
        return denied if request.body.get("NextToken") else None

    front.respond("GetParametersByPath", later)

    found = await provider.find(context(ParameterStore), FindQuery(path=root, name_regexp=r"\d\d$"))

    assert sorted(each.key for each in found) == keys


async def test_where_everything_is_denied_the_cheaper_permission_is_requested(
    front: Front, provider: InMemory, root: str
) -> None:
    front.respond("GetParametersByPath", DENIED)
    front.respond("DescribeParameters", DENIED)

    with pytest.raises(ProviderError) as denied:
        await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp="."))

    assert denied.value.reason is ErrorReason.PERMISSION_DENIED
    subject = f'parameters below "{root}" in eu-west-1'
    expected = f"{subject}: GetParametersByPath is denied (HTTP 400); allow ssm:GetParametersByPath"
    assert denied.value.message == expected


async def test_a_value_that_is_denied_fails_the_find_by_its_name(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    store(ssm, f"{root}/a", f"{root}/b")
    for operation in ("GetParametersByPath", "GetParameters", "GetParameter"):
        front.respond(operation, DENIED)

    with pytest.raises(ProviderError) as denied:
        await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp="."))

    assert denied.value.reason is ErrorReason.PERMISSION_DENIED
    assert f'parameter "{root}/a"' in denied.value.message


async def test_a_parameter_that_was_deleted_after_it_was_listed_is_left_out(
    front: Front, provider: InMemory, ssm: Any, root: str
) -> None:
    keys = [f"{root}/{number}" for number in range(3)]
    store(ssm, *keys)
    front.respond("GetParametersByPath", DENIED)

    def meanwhile(_asked: RecordedRequest) -> StubResponse | None:
        ssm.delete_parameters(Names=[keys[1]])
        return None

    front.respond("GetParameters", meanwhile)

    found = await find(provider, context(ParameterStore), FindQuery(path=root, name_regexp="."))

    assert found == values(keys[0], keys[2])


# --- tags ------------------------------------------------------------------------------------------------------------


async def test_tags_must_all_be_equal(front: Front, provider: InMemory, ssm: Any, root: str) -> None:
    store(ssm, f"{root}/both", team=root, env="prod")
    store(ssm, f"{root}/swapped", team="prod", env=root)
    store(ssm, f"{root}/prefix", team=root, env="production")
    store(ssm, f"{root}/one", team=root)

    found = await find(provider, context(ParameterStore), FindQuery(tags={"team": root, "env": "prod"}))

    assert found == values(f"{root}/both")
    assert front.counts == {"DescribeParameters": 1, "GetParameter": 1}


async def test_tags_below_a_path_are_read_ten_at_a_time(front: Front, provider: InMemory, ssm: Any, root: str) -> None:
    keys = [f"{root}/in/{number:02}" for number in range(12)]
    store(ssm, *keys, f"{root}/out/12", team=root)

    found = await find(provider, context(ParameterStore), FindQuery(path=f"{root}/in", tags={"team": root}))

    assert found == values(*keys)
    assert front.count("GetParameters") == 2
    listing = next(request.body for request in front.requests if request.operation == "DescribeParameters")
    assert {"Key": "Path", "Option": "Recursive", "Values": [f"{root}/in"]} in listing["ParameterFilters"]


@pytest.mark.usefixtures("front")
async def test_a_name_wins_over_tags(provider: InMemory, ssm: Any, root: str) -> None:
    store(ssm, f"{root}/tagged", team=root)
    store(ssm, f"{root}/named")

    query = FindQuery(path=root, name_regexp="named$", tags={"team": root})

    assert await find(provider, context(ParameterStore), query) == values(f"{root}/named")
