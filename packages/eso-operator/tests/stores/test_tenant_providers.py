"""Providers of tenants: off unless an administrator allows them, and then without what the API server accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore, ResolverSettings, ServiceKey
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.clusters import (
    ANYTHING,
    API_AUDIENCE,
    CORE,
    SETTINGS,
    TENANTS_TOO,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import CredentialKind, CredentialPath, KindId
from kubebase.meta import JsonObject, ObjectKey

STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
CORE_ALPHA = "external-secrets.io/v1alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
FAKES = serving(FAKE, v1_key="fake")
HOME = "team-a"

V1_STORE = obj("external-secrets.io/v1", "SecretStore", "store", HOME, spec={"provider": {"fake": {}}}, status=ready())
V1 = StoreRef(name="store")
V2 = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")
MINE = provider_service("mine", HOME, kinds=str(FAKE), v1_keys="fake")
SHARED = provider_service("shared", CORE, kinds=str(FAKE), v1_keys="fake")


def v2_store(**config: Any) -> JsonObject:
    given = {"inline": {"kind": "Fake", "spec": {}}, **config}
    return obj(STORES_V2, "SecretStore", "store", HOME, spec={"providerConfig": given})


def a_class(name: str, address: str, namespace: str = "", **spec: Any) -> JsonObject:
    kind = "ProviderClass" if namespace else "ClusterProviderClass"
    return obj(CORE_ALPHA, kind, name, namespace, spec={"address": address, "v1ProviderKeys": ["fake"], **spec})


def resolved(ref: StoreRef, *documents: JsonObject, settings: ResolverSettings = SETTINGS) -> ResolvedStore:
    view = cluster(*documents, handshakes=EveryConnection(FAKES))
    return resolve(ref, caller(HOME), need=ANYTHING, view=view, settings=settings)


def refusal(ref: StoreRef, *documents: JsonObject, settings: ResolverSettings = SETTINGS) -> ResolutionError:
    with pytest.raises(ResolutionError) as raised:
        resolved(ref, *documents, settings=settings)
    return raised.value


# --- off by default ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own",
    [
        pytest.param([MINE], id="labelled Service"),
        pytest.param([MINE, a_class("mine", "mine:8080", HOME)], id="ProviderClass"),
    ],
)
def test_a_tenants_provider_does_not_take_over_the_stores_of_its_namespace(own: list[JsonObject]) -> None:
    assert resolved(V1, V1_STORE, SHARED, *own).endpoint.service == ServiceKey(CORE, "shared")
    assert refusal(V1, V1_STORE, *own).reason is Reason.NOT_INSTALLED
    assert resolved(V1, V1_STORE, SHARED, *own, settings=TENANTS_TOO).endpoint.service == ServiceKey(HOME, "mine")


def test_a_service_that_is_ignored_is_named_with_the_flag_that_changes_it() -> None:
    message = refusal(V1, V1_STORE, MINE).message

    assert "Service mine of namespace team-a is ignored" in message
    assert "--namespaced-providers" in message


@pytest.mark.parametrize(
    ("config", "more"),
    [
        pytest.param({"address": "mine:8080"}, [], id="by address"),
        pytest.param(
            {"classRef": {"kind": "ProviderClass", "name": "mine"}}, [a_class("mine", "mine:8080", HOME)], id="by class"
        ),
    ],
)
def test_a_store_cannot_name_a_service_of_its_own_namespace(config: dict[str, Any], more: list[JsonObject]) -> None:
    store = v2_store(**config)

    error = refusal(V2, store, *more)

    assert error.reason is Reason.ADDRESS_DENIED
    assert "--namespaced-providers" in error.message
    assert resolved(V2, store, *more, settings=TENANTS_TOO).endpoint.tenant == HOME


def test_a_service_that_an_administrator_names_may_be_used_in_its_namespace() -> None:
    """Stores that name it themselves go on working."""
    vouched = a_class("theirs", f"grpc://mine.{HOME}.svc:8080")

    by_class = resolved(V1, V1_STORE, MINE, vouched).endpoint
    by_address = resolved(V2, v2_store(address="mine:8080"), vouched).endpoint

    assert by_class.service == by_address.service == ServiceKey(HOME, "mine")
    assert (by_class.tenant, by_address.tenant) == ("", "")


def test_an_administrators_word_on_one_service_says_nothing_about_another() -> None:
    vouched = a_class("theirs", f"grpc://other.{HOME}.svc:8080")

    assert refusal(V2, v2_store(address="mine:8080"), vouched).reason is Reason.ADDRESS_DENIED


def test_a_namespace_that_an_administrator_names_has_providers() -> None:
    settings = replace(SETTINGS, provider_namespaces=(HOME,))

    endpoint = resolved(V1, V1_STORE, MINE, settings=settings).endpoint

    assert (endpoint.service, endpoint.tenant) == (ServiceKey(HOME, "mine"), "")


# --- tokens of service accounts ---------------------------------------------------------------------------------------

ACCOUNT = CredentialPath("/auth/ref", CredentialKind.SERVICE_ACCOUNT)


def using_a_token(tenant: str, *audiences: str) -> ResolvedStore:
    base = bound_store().resolved
    spec = json.dumps({"auth": {"ref": {"name": "robot", "audiences": audiences}}}).encode()
    config = replace(base.config, spec=spec, credentials=(ACCOUNT,))
    endpoint = replace(base.endpoint, tenant=tenant)
    return replace(base, config=config, endpoint=endpoint, auth_namespace=HOME)


@pytest.mark.parametrize(
    "audiences",
    [
        pytest.param((), id="none: the API server's own"),
        pytest.param((API_AUDIENCE,), id="the API server's"),
        pytest.param(("vault", API_AUDIENCE), id="the API server's among others"),
    ],
)
async def test_a_tenants_provider_never_gets_a_token_that_the_api_server_accepts(audiences: tuple[str, ...]) -> None:
    reader = NotedReads()

    with pytest.raises(ResolutionError) as raised:
        await bind(using_a_token(HOME, *audiences), reader)

    assert raised.value.reason is Reason.CREDENTIALS_DENIED
    assert f"ServiceAccount {HOME}/robot" in raised.value.message
    assert reader.tokens == []


@pytest.mark.parametrize(
    ("tenant", "audiences"),
    [
        pytest.param(HOME, ("vault",), id="for another audience"),
        pytest.param("", (), id="an administrator's provider"),
    ],
)
async def test_other_tokens_are_given(tenant: str, audiences: tuple[str, ...]) -> None:
    reader = NotedReads()

    await bind(using_a_token(tenant, *audiences), reader)

    assert reader.tokens == [(ObjectKey(HOME, "robot"), audiences)]


@pytest.mark.parametrize("said", [[API_AUDIENCE], ["external-secrets-provider/shared"]])
def test_the_audience_of_call_tokens_for_a_tenants_provider_is_fixed(said: list[str]) -> None:
    auth = {"serviceAccountRef": {"name": "robot"}}
    chosen = {"serviceAccountRef": {"name": "robot", "audiences": said}}

    target = resolved(V2, v2_store(address="mine:8080", auth=auth), settings=TENANTS_TOO)
    error = refusal(V2, v2_store(address="mine:8080", auth=chosen), settings=TENANTS_TOO)

    assert target.call_token is not None
    assert target.call_token.audiences == (f"external-secrets-provider/{HOME}/mine",)
    assert error.reason is Reason.INVALID_CONFIG
