"""The kinds of this provider, and its generator."""

from __future__ import annotations

import pytest

from eso_api.kinds import installed_kinds
from eso_provider_gcp.generator import GCRAccessTokenGenerator
from eso_provider_gcp.kinds import KINDS
from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.sessions import Google, context
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ValidationMode, ValidationState


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


def test_the_v1_block_is_served_by_the_namespaced_kind() -> None:
    served = {info.kind.kind: info.v1_provider_key for info in PROVIDER.kind_infos}
    assert served["GCPSecretManager"] == "gcpsm"
    assert "GCRAccessToken" in served


async def test_a_registry_login_tells_when_it_expires(google: Google, provider: InMemory) -> None:
    made = await provider.generate(context(google, GCRAccessTokenGenerator))
    values = {name: value.reveal().decode() for name, value in made.data.items()}
    assert values["username"] == "oauth2accesstoken"
    assert google.tokens.issued[values["password"]].startswith("app@")
    assert made.metadata.expires_at is not None
    assert values["expiry"] == str(int(made.metadata.expires_at.timestamp()))


async def test_a_registry_login_that_google_refuses_quotes_nothing(google: Google, provider: InMemory) -> None:
    google.tokens.refuse = 400
    with pytest.raises(ProviderError) as caught:
        await provider.generate(context(google, GCRAccessTokenGenerator))
    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "invalid_grant" not in caught.value.message


ACCOUNT = {"serviceAccountRef": {"name": "app", "namespace": "team"}}
KEY = {"name": "gcp", "key": "key.json"}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param({"projectID": "p", "auth": {"secretRef": {"secretAccessKeySecretRef": KEY}}}, id="key"),
        pytest.param({"projectID": "p", "auth": {"workloadIdentity": ACCOUNT}}, id="workload identity"),
        pytest.param({"auth": {"workloadIdentityFederation": {"credConfig": KEY}}}, id="federation by configuration"),
        pytest.param(
            {"auth": {"workloadIdentityFederation": {"audience": "a", **ACCOUNT}}}, id="federation by account"
        ),
        pytest.param({"projectID": "p", "location": "europe-west3"}, id="the process's own, regional"),
        pytest.param({"projectID": "p", "secretVersionSelectionPolicy": "LatestOrFetch"}, id="policy"),
    ],
)
async def test_a_v1_block_is_accepted_unedited(provider: InMemory, block: dict[str, object]) -> None:
    validation = await provider.validate(call_context(SecretManagerStore, block), ValidationMode.STATIC)
    assert validation.state is ValidationState.READY
