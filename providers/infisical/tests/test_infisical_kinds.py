"""The kinds of this provider, the v1 block that it serves, and configurations that are refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from eso_api.kinds import AnyKind, installed_kinds
from eso_provider_infisical.kinds import KINDS
from eso_provider_infisical.provider import PROVIDER
from eso_provider_infisical.store import InfisicalStore
from eso_provider_infisical.testing.server import CREDENTIALS, UNIVERSAL, InfisicalServer, spec_of
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import read
from eso_wire.errors import ErrorReason, ProviderError

SCOPE = {"projectSlug": "shop", "environmentSlug": "dev"}


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_a_scope_and_a_login_are_all_a_configuration_needs(kind: AnyKind) -> None:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert sorted(schema["properties"]["spec"]["required"]) == ["auth", "secretsScope"]


def test_one_kind_serves_the_block_of_v1_stores() -> None:
    served = [info.kind.kind for info in PROVIDER.kind_infos if info.v1_provider_key == "infisical"]

    assert served == ["Infisical"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"auth": {}, "secretsScope": SCOPE}, "/auth: needs one of universalAuth", id="no login"),
        pytest.param({"auth": UNIVERSAL, "secretsScope": SCOPE | {"projectSlug": " "}}, "projectSlug", id="no project"),
        pytest.param(
            {"auth": UNIVERSAL, "secretsScope": SCOPE | {"environmentSlug": ""}}, "environmentSlug", id="no environment"
        ),
        pytest.param({"auth": UNIVERSAL, "secretsScope": SCOPE, "hostAPI": "ftp://x"}, "/hostAPI", id="no URL"),
        pytest.param({"auth": UNIVERSAL, "secretsScope": SCOPE, "caBundle": "%"}, "/caBundle", id="no bundle"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused(provider: InMemory, spec: dict[str, Any], text: str) -> None:
    verdict = await provider.validate(call_context(InfisicalStore, spec, CREDENTIALS))

    assert isinstance(verdict.error, ProviderError)
    assert verdict.error.reason is ErrorReason.CONFIG_INVALID
    assert text in str(verdict.error)


async def test_several_logins_are_warned_of(provider: InMemory, server: InfisicalServer) -> None:
    token = {"tokenAuthCredentials": {"accessToken": {"name": "infisical", "key": "token"}}}
    sent = CREDENTIALS | {"/auth/tokenAuthCredentials/accessToken": "unused"}

    verdict = await provider.validate(call_context(InfisicalStore, spec_of(server, {**UNIVERSAL, **token}), sent))

    assert verdict.warnings == (
        "auth configures universalAuthCredentials, tokenAuthCredentials; only universalAuthCredentials is used",
    )


@pytest.mark.parametrize("times", [pytest.param(1, id="base64"), pytest.param(2, id="base64 twice")])
async def test_a_server_with_its_own_authority_is_trusted_with_its_bundle(
    tls_server: InfisicalServer, provider: InMemory, times: int
) -> None:
    tls_server.project().put("/A", "1")
    bundle = tls_server.ca
    for _ in range(times):
        bundle = base64.b64encode(bundle)
    spec = spec_of(tls_server) | {"caBundle": bundle.decode()}

    assert await read(provider, call_context(InfisicalStore, spec, CREDENTIALS), "A") == [b"1"]


async def test_a_bundle_of_a_config_map_is_trusted_too(tls_server: InfisicalServer, provider: InMemory) -> None:
    tls_server.project().put("/A", "1")
    spec = spec_of(tls_server) | {"caProvider": {"type": "ConfigMap", "name": "authority", "key": "ca.crt"}}
    sent = CREDENTIALS | {"/caProvider": tls_server.ca.decode()}

    assert await read(provider, call_context(InfisicalStore, spec, sent), "A") == [b"1"]


async def test_a_server_with_an_unknown_authority_is_not_asked(tls_server: InfisicalServer, provider: InMemory) -> None:
    (outcome,) = await read(provider, call_context(InfisicalStore, spec_of(tls_server), CREDENTIALS), "A")

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert tls_server.calls == []
