"""The kinds of this provider, and the fields of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from eso_provider_onepassword.connect import ConnectStore
from eso_provider_onepassword.provider import PROVIDER
from eso_provider_onepassword.sdk import SDKStore
from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.sessions import CONNECT_POINTER, REFERENCE, SDK_POINTER, connect, failure, read
from eso_sdk.backend import Backend
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason
from eso_wire.values import ObjectRef, Operation, ValidationState

CONNECT: dict[str, Any] = {
    "connectHost": "http://connect:8080",
    "vaults": {"team": 1},
    "auth": {"secretRef": {"connectTokenSecretRef": REFERENCE}},
}
SDK: dict[str, Any] = {"vault": "team", "auth": {"serviceAccountSecretRef": REFERENCE}}


def test_both_v1_blocks_and_four_kinds_are_served() -> None:
    infos = PROVIDER.kind_infos

    assert {info.kind.kind: info.v1_provider_key for info in infos} == {
        "OnePassword": "onepassword",
        "ClusterOnePassword": "",
        "OnePasswordSDK": "onepasswordSDK",
        "ClusterOnePasswordSDK": "",
    }
    for info in infos:
        assert {
            Operation.NOT_FOUND_SEMANTICS,
            Operation.PUSH_GROUPED,
            Operation.DELETE,
            Operation.EXISTS,
        } <= info.operations
        assert {Operation.FIND_BY_NAME, Operation.FIND_BY_TAGS, Operation.FIND_BY_PATH} <= info.operations
        assert (Operation.PUSH_WHOLE_SECRET in info.operations) is info.kind.kind.endswith("SDK")


@pytest.mark.parametrize(
    ("backend", "spec", "field"),
    [
        pytest.param(ConnectStore, {"connectHost": "connect:8080"}, "/connectHost", id="an address without a scheme"),
        pytest.param(ConnectStore, {"connectHost": "http://c/?a=b"}, "/connectHost", id="an address with a query"),
        pytest.param(ConnectStore, {"vaults": {}}, "/vaults", id="no vault"),
        pytest.param(ConnectStore, {"vaults": {"": 1}}, "/vaults", id="a vault without a name"),
        pytest.param(ConnectStore, {"vaults": {"a": 1, "b": 1}}, "/vaults", id="two vaults in the same place"),
        pytest.param(
            ConnectStore,
            {"auth": {"secretRef": {"connectTokenSecretRef": {"name": "onepassword"}}}},
            "/auth/secretRef/connectTokenSecretRef",
            id="no key of the Secret",
        ),
        pytest.param(SDKStore, {"vault": ""}, "/vault", id="neither vault nor environment"),
        pytest.param(SDKStore, {"environment": "e"}, "/vault", id="vault and environment"),
        pytest.param(SDKStore, {"vault": "op://team"}, "/vault", id="a reference as vault"),
        pytest.param(SDKStore, {"cache": {"ttl": "soon"}}, "/cache/ttl", id="a time to live that is none"),
        pytest.param(
            SDKStore,
            {"auth": {"serviceAccountSecretRef": {"key": "token"}}},
            "/auth/serviceAccountSecretRef",
            id="no name of the Secret",
        ),
    ],
)
async def test_an_unusable_configuration_names_its_field(
    backend: type[Backend[Any]], spec: dict[str, Any], field: str, provider: InMemory
) -> None:
    base = CONNECT if backend is ConnectStore else SDK

    verdict = await provider.validate(call_context(backend, base | spec, {}))

    assert verdict.state is ValidationState.INVALID
    assert verdict.error is not None
    assert verdict.error.reason is ErrorReason.CONFIG_INVALID
    assert verdict.error.message.startswith(field)


@pytest.mark.parametrize(
    ("backend", "spec", "pointer"),
    [
        pytest.param(ConnectStore, CONNECT, CONNECT_POINTER, id="Connect"),
        pytest.param(SDKStore, SDK, SDK_POINTER, id="SDK"),
    ],
)
async def test_a_cluster_scoped_store_must_name_the_namespace_of_its_token(
    backend: type[Backend[Any]], spec: dict[str, Any], pointer: str, provider: InMemory
) -> None:
    call = call_context(
        backend,
        spec,
        {pointer: "token"},
        namespace="",
        caller=ObjectRef("external-secrets.io/v1", "ExternalSecret", "team", "caller", uid="2"),
        auth_namespace="team",
    )

    error = await failure(provider, call, "login")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert error.message.startswith(f"{pointer}/namespace")


async def test_validation_of_a_connect_store_looks_at_every_vault(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team")
    good = await provider.validate(connect(server, "team"))

    bad = await provider.validate(connect(server, "team", "missing"))

    assert (good.state, bad.state) == (ValidationState.READY, ValidationState.INVALID)
    assert bad.error is not None
    assert '"missing"' in bad.error.message


async def test_the_token_is_sent_as_a_bearer_token(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team").put("login", {"password": "x"})

    await read(provider, connect(server), "login")

    assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("token", ["", "with blank", "with\nbreak"])
async def test_a_token_that_is_none_is_refused_before_it_is_sent(
    token: str, server: ConnectServer, provider: InMemory
) -> None:
    error = await failure(provider, connect(server, token=token), "login")

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert server.calls == []


async def test_an_address_may_have_a_path(server: ConnectServer, provider: InMemory) -> None:
    server.vault("team")
    server.contract = None  # nothing is at this path

    await failure(provider, connect(server, connectHost=f"{server.url}/behind/proxy/"), "login")

    assert {call.path for call in server.calls} == {"/behind/proxy/v1/vaults"}
