"""Logins with the identity of the provider's own process: no tenant uses it, and no server of a tenant receives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from eso_provider_vault.testing.sessions import opened
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.errors import ErrorReason, ProviderError

FORMS = [
    pytest.param({"kubernetes": {"role": "app"}}, id="the token of the pod"),
    pytest.param({"iam": {"vaultRole": "app", "vaultAwsIamServerID": "vault.corp"}}, id="the AWS role"),
    pytest.param({"gcp": {"role": "app"}}, id="the identity token of the machine"),
]


@dataclass(slots=True)
class Recorder(StandIn):
    """A server of a tenant, and the metadata services of the machine."""

    async def respond(self, asked: StandinRequest) -> StandinResponse:
        del asked
        return StandinResponse(200, {"auth": {"client_token": "t", "lease_duration": 60}})


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with Recorder.started() as running:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("GCE_METADATA_HOST", running.url.removeprefix("http://"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{running.url}/pod-identity")
        monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
        yield running


async def refusal(spec: dict[str, Any], policy: ProcessIdentityPolicy) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        async with opened(spec, process_identity=policy):
            pass
    return refused.value


@pytest.mark.parametrize("auth", FORMS)
async def test_a_store_of_a_namespace_does_not_use_the_identity_of_the_provider(
    recorder: Recorder, auth: dict[str, Any]
) -> None:
    policy = ProcessIdentityPolicy.parse("cluster", ["http://127.0.0.1"])

    refused = await refusal({"server": recorder.url, "path": "secret", "auth": auth}, policy)

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert "--ambient-identity=namespaced" in refused.message
    assert recorder.calls == []


@pytest.mark.parametrize("auth", FORMS)
async def test_a_server_that_the_administrator_does_not_list_receives_no_proof(
    recorder: Recorder, auth: dict[str, Any]
) -> None:
    policy = ProcessIdentityPolicy.parse("namespaced", ["vault.example.com"])

    refused = await refusal({"server": recorder.url, "path": "secret", "auth": auth}, policy)

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert "--identity-host=http://127.0.0.1" in refused.message
    assert recorder.calls == []
