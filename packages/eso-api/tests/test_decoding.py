"""Every object that an API server with our CRDs may have stored decodes, and survives a round trip."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.kinds import AnyKind, installed_kinds
from eso_api.pushsecret import PushSecret
from eso_api.secretstore import SecretStore
from eso_api.v2.generator import ClusterGeneratorV2
from eso_api.v2.provider import ClusterProvider, Provider
from kubebase.meta import Object

ALL = [pytest.param(kind, id=kind.crd_name) for kind in installed_kinds()]

SAMPLES = 40
TEXTS = ("", "a", "1d", "Tomorrow", "\U0001f511", "x" * 300)
JSON_VALUES: tuple[Any, ...] = (None, True, -1, 1.5, "text", [], [1, None], {}, {"a": {"b": [False]}})


def sample(schema: dict[str, Any], chance: Random) -> Any:
    """Generate JSON that fits the types of a schema. Patterns, limits and rules are ignored: more must decode."""
    if schema.get("x-kubernetes-int-or-string"):
        return chance.choice((0, -5, 1 << 62, *TEXTS))
    if "enum" in schema:
        return chance.choice((*schema["enum"], "AValueOfTomorrow"))
    match schema.get("type"):
        case "string":
            return chance.choice(TEXTS)
        case "integer":
            return chance.choice((0, 1, -1, -(1 << 63), (1 << 63) - 1))
        case "number":
            return chance.choice((0.0, -1.5, 1e300, 7))
        case "boolean":
            return chance.choice((True, False))
        case "array":
            return [sample(schema["items"], chance) for _ in range(chance.randint(0, 2))]
        case "object" if "properties" in schema:
            required = schema.get("required", [])
            chosen = [name for name in schema["properties"] if name in required or chance.random() < 0.4]
            return {name: sample(schema["properties"][name], chance) for name in chosen}
        case "object" if "additionalProperties" in schema:
            return {text: sample(schema["additionalProperties"], chance) for text in TEXTS[: chance.randint(0, 2)]}
        case "object":
            return chance.choice(({}, {"a": 1}, {"a": None, "b": [{}]}))
        case _:
            return chance.choice(JSON_VALUES)


@pytest.mark.parametrize("kind", ALL)
def test_whatever_the_schema_admits_decodes_and_survives_a_round_trip(kind: AnyKind) -> None:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    chance = Random(kind.crd_name)  # noqa: S311 - the same samples in every run

    for _ in range(SAMPLES):
        stored = {**sample(schema, chance), "metadata": {}}
        decoded = msgspec.json.decode(msgspec.json.encode(stored), type=kind.type)

        assert msgspec.json.decode(msgspec.json.encode(decoded), type=kind.type) == decoded


def decode_external_secret(spec: dict[str, Any]) -> ExternalSecret:
    return msgspec.convert({"spec": spec}, ExternalSecret)


def test_one_bad_duration_does_not_break_the_list() -> None:
    body = {"items": [{"spec": {"refreshInterval": interval}} for interval in ("1d", 0, "0", "1h")]}

    class Items(msgspec.Struct):
        items: list[ExternalSecret]

    items = msgspec.json.decode(msgspec.json.encode(body), type=Items).items

    assert [item.spec.refresh_interval for item in items] == ["1d", 0, "0", "1h"]


def test_absent_fields_have_their_documented_meaning() -> None:
    spec = decode_external_secret({}).spec

    assert spec.refresh_interval == "1h0m0s"
    assert spec.refresh_policy == "Periodic"
    assert (spec.target.creation_policy, spec.target.deletion_policy) == ("Owner", "Retain")
    assert spec.secret_store_ref is None


def test_push_secret_without_policies_replaces_and_keeps_R1_R9() -> None:  # noqa: N802 - the rows' names
    stored = {"secretStoreRefs": [{"name": "store"}], "selector": {"secret": {"name": "source"}}}

    spec = msgspec.convert({"spec": stored}, PushSecret).spec

    assert (spec.update_policy, spec.deletion_policy) == ("Replace", "None")
    assert spec.secret_store_refs[0].kind == "SecretStore"


def test_a_value_of_a_later_version_decodes() -> None:
    spec = decode_external_secret({"target": {"creationPolicy": "Tomorrow"}, "newField": 1}).spec

    assert spec.target.creation_policy == "Tomorrow"


def test_a_provider_block_is_kept_byte_for_byte() -> None:
    block = {"aws": {"region": "eu", "unknown": {"deep": [1, None]}}}

    spec = msgspec.convert({"spec": {"provider": block}}, SecretStore).spec

    assert spec.provider == block
    assert spec.provider_key == "aws"


@pytest.mark.parametrize("block", [pytest.param({}, id="none"), pytest.param({"aws": {}, "vault": {}}, id="two")])
def test_a_store_without_exactly_one_provider_has_no_key(block: dict[str, Any]) -> None:
    assert msgspec.convert({"spec": {"provider": block}}, SecretStore).spec.provider_key == ""


@pytest.mark.parametrize(
    ("spec", "scope"),
    [
        pytest.param({}, "ProviderNamespace", id="absent"),
        pytest.param({"authenticationScope": "ManifestNamespace"}, "ManifestNamespace", id="R89 spelling"),
        pytest.param({"authenticationNamespace": "ManifestReference"}, "ManifestNamespace", id="R94 ManifestReference"),
        pytest.param({"authenticationNamespace": "ProviderReference"}, "ProviderNamespace", id="R94 ProviderReference"),
    ],
)
def test_both_spellings_of_the_authentication_scope_mean_the_same(spec: dict[str, Any], scope: str) -> None:
    config = {"providerRef": {"kind": "Password", "name": "p"}}

    assert msgspec.convert({"spec": {"providerConfig": config, **spec}}, ClusterGeneratorV2).spec.scope == scope


@pytest.mark.parametrize("type_", [Provider, ClusterProvider])
def test_both_spellings_of_a_provider_mean_the_same(type_: type[Provider | ClusterProvider]) -> None:
    connection = {"address": "grpc://p:1", "providerRef": {"kind": "SecretsManager", "name": "eu"}}

    short, long = (
        msgspec.convert({"spec": spec}, type_).spec.provider_config for spec in (connection, {"config": connection})
    )

    assert short == long


def test_a_kind_is_ready_for_a_client() -> None:
    kind = EXTERNAL_SECRET.kind("v1beta1")

    assert kind.type is ExternalSecret
    assert issubclass(kind.type, Object)
    assert (
        kind.resource.path("default", "db") == "/apis/external-secrets.io/v1beta1/namespaces/default/externalsecrets/db"
    )
