"""Stores on a live API server, with a real gRPC server and real certificates behind them (R71, R124)."""

import base64
import secrets as randomness
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_api.values import SecretBytes
from eso_operator.certificates.authority import issue_authority, issue_server
from eso_operator.certificates.state import Credential, ServerNames, Window
from eso_testkit.operator.operators import BACKEND, MAKER, SERVICE, Bench, scripted, with_interval
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire import codec
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.tls import TlsMaterial
from eso_wire.values import ConditionReport, Validation, ValidationState
from eso_wire.versions import ProtocolVersion
from kubebase.clock import SystemClock
from kubebase.meta import Condition
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

STORES = SECRET_STORE.resource()
CLUSTER_STORES = CLUSTER_SECRET_STORE.resource()
STORES_V2 = SECRET_STORE_V2.resource()
BACKENDS = BACKEND.resource()

FAKE = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
VAULT = {"server": "https://vault", "auth": {"tokenSecretRef": {"name": "token", "key": "token"}}}
BY_REF: dict[str, Any] = {"providerConfig": {"providerRef": {"kind": "Backend", "name": "one"}}}


def valid(condition: Condition) -> bool:
    return (condition.status, condition.reason) == ("True", "Valid")


def broken(*words: str) -> Any:
    return lambda condition: (
        condition.status == "False" and all(word in f"{condition.reason} {condition.message}" for word in words)
    )


def answering(validation: Validation) -> ScriptedProvider:
    """A provider with this opinion of every configuration."""
    answer = codec.to_validate_response(validation).SerializeToString()
    return scripted(nonsense=lambda method, true: answer if "Validate" in method else true)


def unique(name: str) -> str:
    """Cluster-scoped objects of several tests are in one cluster."""
    return f"{name}-{randomness.token_hex(4)}"


@pytest.mark.parametrize(
    ("key", "block"),
    [
        pytest.param("alibaba", {"regionID": "eu-central-1", "auth": {"rrsa": {"roleArn": "a"}}}, id="alibaba"),
        pytest.param("device42", {"host": "a", "auth": {"secretRef": {"credentials": {"name": "b"}}}}, id="device42"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_backend_that_upstream_removed_is_accepted_and_says_so(
    bench: Bench, key: str, block: dict[str, Any], version: str
) -> None:
    manifest = {
        "apiVersion": f"external-secrets.io/{version}",
        "kind": "SecretStore",
        "metadata": {"name": "old"},
        "spec": {"provider": {key: block}},
    }
    path = f"/apis/external-secrets.io/{version}/namespaces/{bench.namespace}/secretstores"

    async with bench.operator():
        created = await bench.api.post(path, manifest, fieldValidation="Strict")
        assert created.status == 201, created.body
        found = await bench.ready(STORES, "old", broken(f'upstream removed the backend "{key}"', "another backend"))

    assert found["spec"]["provider"] == {key: block}


async def test_a_v1_store_is_bridged_unedited_and_becomes_valid(bench: Bench) -> None:
    async with bench.operator():
        await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)

        store = await bench.ready(STORES, "fake", valid)

    assert store["status"]["capabilities"] == "ReadOnly"
    assert store["spec"] == FAKE


async def test_a_ready_store_that_is_edited_is_looked_at_again_long_before_its_interval(bench: Bench) -> None:
    async with bench.operator(with_interval(bench.settings, 3600.0)):
        await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", valid)

        await bench.patch(STORES, "fake", {"spec": {"provider": {"fake": None, "vault": VAULT}}})

        await bench.ready(STORES, "fake", broken("ProviderNotInstalled", "vault"))


async def test_a_store_that_was_there_before_its_provider_is_ready_soon_after_it_arrives(bench: Bench) -> None:
    async with bench.operator():
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", broken("ProviderNotInstalled", "fake"))

        await bench.install(scripted())

        await bench.ready(STORES, "fake", valid, within=15)


async def test_a_lost_provider_is_named_in_the_condition_and_its_return_is_seen(bench: Bench) -> None:
    """R117."""
    async with bench.operator(with_interval(bench.settings, 1.0)):
        host = await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", valid)

        await host.stop()
        gone = await bench.ready(STORES, "fake", broken("Refused", SERVICE))
        host.provider.instance_id = "instance-2"
        await host.start()

        await bench.ready(STORES, "fake", valid)
        await bench.until_event("fake", "Warning", "InvalidProviderConfig")
    assert gone["status"]["conditions"][0]["reason"] == "InvalidProviderConfig"


@pytest.mark.parametrize(
    "cause",
    [
        pytest.param("UnknownCA", id="the provider's certificate is of another authority, R158"),
        pytest.param("ServerCertExpired", id="the provider's certificate has expired"),
        pytest.param("HostnameMismatch", id="the provider's certificate has another name"),
    ],
)
async def test_trouble_with_certificates_is_told_apart(bench: Bench, cause: str) -> None:
    async with bench.operator():
        host = await bench.install(scripted(), provider_v1_keys="fake")
        await host.stop()
        host.material = await _spoilt(bench, host.material.ca, cause)
        await host.start()
        await bench.create(STORES, "fake", spec=FAKE)

        await bench.ready(STORES, "fake", broken("InvalidProviderConfig", f"{cause}: "))


async def _spoilt(bench: Bench, trust: bytes, cause: str) -> TlsMaterial:
    """A certificate for the provider that is wrong in one respect."""
    now = SystemClock().now()
    valid_now = Window(now - timedelta(hours=1), now + timedelta(hours=1))
    stored = await bench.find(SECRETS, f"{bench.namespace}.{SERVICE}-issuer")
    assert stored is not None
    certificate, key = (base64.b64decode(stored["data"][name]) for name in ("tls.crt", "tls.key"))
    issuer = Credential(certificate, SecretBytes(key))
    if cause == "UnknownCA":
        issuer = issue_authority("another writer", valid_now)
    window = (
        Window(now - timedelta(minutes=1), now - timedelta(seconds=1)) if cause == "ServerCertExpired" else valid_now
    )
    name = "other.svc" if cause == "HostnameMismatch" else f"{SERVICE}.{bench.namespace}.svc"
    leaf = issue_server(issuer, ServerNames((name,), "spiffe://cluster.local/ns/a/svc/b"), window)
    return TlsMaterial(trust, leaf.certificate, leaf.key)


async def test_an_incompatible_provider_is_refused_with_both_version_ranges(bench: Bench) -> None:
    """R141."""
    async with bench.operator():
        await bench.install(scripted(speaks=(ProtocolVersion(9, 0),)), provider_v1_keys="fake")
        await bench.create(STORES, "fake", spec=FAKE)

        await bench.ready(STORES, "fake", broken("ProviderIncompatible", "9.0", "2.1, 2.2"))


async def test_a_store_of_another_class_is_not_touched(bench: Bench) -> None:
    """R79."""
    async with bench.operator():
        await bench.install(scripted())
        await bench.create(STORES, "other", spec={**FAKE, "controller": "another"})
        await bench.create(STORES, "same", spec={**FAKE, "controller": "default"})

        await bench.ready(STORES, "same", valid)

        other = await bench.find(STORES, "other")
    assert other is not None
    assert "status" not in other


async def test_an_idle_store_is_validated_and_not_written(bench: Bench) -> None:
    """R78."""
    provider = scripted()
    async with bench.operator():
        await bench.install(provider)
        await bench.create(STORES, "fake", spec={**FAKE, "refreshInterval": 1})
        first = await bench.ready(STORES, "fake", valid)
        await bench.until_event("fake", "Normal", "Valid")
        events, seen = await bench.events("fake"), provider.calls["Validate"]

        async def validated_again() -> bool:
            return provider.calls["Validate"] >= seen + 2

        await eventually(validated_again, "the store was not validated again")
        last = await bench.find(STORES, "fake")
        assert await bench.events("fake") == events
    assert last is not None
    assert last["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_deleted_store_leaves_no_metric_series(bench: Bench) -> None:
    """R169: and calls to providers are counted."""
    async with bench.operator() as operator:
        await bench.install(scripted())
        await bench.create(STORES, "fake", spec=FAKE)
        await bench.ready(STORES, "fake", valid)
        labels = f'condition="Ready",name="fake",namespace="{bench.namespace}",status="True"'
        series = f"secretstore_status_condition{{{labels}}} 1.0"

        async def shown() -> bool:
            return series in operator.metrics.exposition().decode()

        async def hidden() -> bool:
            text = operator.metrics.exposition().decode()
            return not any(line.startswith("secretstore_") and bench.namespace in line for line in text.splitlines())

        await eventually(shown, "no series of the store")
        assert 'eso_grpc_client_handled_total{code="OK",method="Validate"' in operator.metrics.exposition().decode()
        await bench.delete(STORES, "fake")
        await eventually(hidden, "series of a deleted store")


async def test_the_provider_closes_the_sessions_of_a_deleted_store_and_of_no_other(bench: Bench) -> None:
    async with bench.operator():
        host = await bench.install(scripted())
        for name in ("gone", "stays"):
            await bench.create(STORES, name, spec=FAKE)
        store = await bench.ready(STORES, "gone", valid)
        await bench.ready(STORES, "stays", valid)

        await bench.delete(STORES, "gone")

        async def closed() -> bool:
            return bool(host.provider.closed)

        await eventually(closed, "the provider does not learn that the store is gone")
    [ref] = host.provider.closed
    assert (ref.kind, ref.namespace, ref.name) == ("SecretStore", bench.namespace, "gone")
    assert ref.uid == store["metadata"]["uid"]


async def test_the_provider_closes_the_sessions_of_a_deleted_configuration(bench: Bench) -> None:
    async with bench.operator():
        host = await bench.install(scripted())
        await bench.create(BACKENDS, "one", spec={})
        await bench.create(STORES_V2, "direct", spec=BY_REF)
        await bench.ready(STORES_V2, "direct", valid)

        await bench.delete(BACKENDS, "one")

        async def closed() -> bool:
            return [ref.kind for ref in host.provider.closed] == ["Backend"]

        await eventually(closed, "the provider does not learn that the configuration is gone")


# --- v2 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(SECRET_STORE_V2, id="SecretStore v2, R77 R86"),
        pytest.param(PROVIDER, id="Provider, R179 R180"),
    ],
)
async def test_a_v2_store_of_a_providers_own_kind_becomes_valid(bench: Bench, kind: Any) -> None:
    spec = BY_REF if kind is SECRET_STORE_V2 else BY_REF["providerConfig"]
    async with bench.operator():
        await bench.install(scripted())
        await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
        await bench.create(kind.resource(), "store", spec=spec)

        store = await bench.ready(kind.resource(), "store", valid)

    assert store["status"]["capabilities"] == "ReadOnly"
    assert store["status"]["operations"] == ["FIND_BY_NAME", "GET", "GET_MAP", "NOT_FOUND_SEMANTICS"]
    assert store["status"]["observedGeneration"] == 1


async def test_a_v2_store_wakes_when_its_configuration_and_its_secret_appear(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    """R82, R99, R187, R193: the address of a Service; the credential that the configuration names is sent along."""
    spec = {"providerConfig": {**BY_REF["providerConfig"], "address": f"grpc://{SERVICE}:8080"}}
    async with bench.operator() as operator:
        await bench.install(scripted())
        await bench.create(STORES_V2, "store", spec=spec)
        await bench.ready(STORES_V2, "store", broken("ProviderConfigNotFound", "Backend"))
        reference = {"tokenSecretRef": {"name": "token", "key": "token"}}
        await bench.create(BACKENDS, "one", spec={"url": "https://backend", "auth": reference})
        await bench.ready(STORES_V2, "store", broken("CredentialsNotFound", "token"), within=15)

        value = base64.b64encode(b"CANARY-token").decode()
        await bench.create(SECRETS, "token", data={"token": value})

        store = await bench.ready(STORES_V2, "store", valid, within=15)
        shown = operator.metrics.exposition().decode() + str(store) + capfd.readouterr().out
    assert "CANARY" not in shown
    assert value not in shown


async def test_generators_share_fields_and_behaviour_with_stores(bench: Bench) -> None:
    """R61, R92, R93."""
    cluster = unique("maker")
    ref = {"providerRef": {"kind": "Maker", "name": "one"}}
    async with bench.operator():
        await bench.install(scripted())
        await bench.create(MAKER.resource(), "one", spec={})
        await bench.create(GENERATOR.resource(), "maker", spec={"providerConfig": ref, "refreshInterval": "5m"})
        pinned = {"providerRef": {**ref["providerRef"], "namespace": bench.namespace}}
        await bench.create(CLUSTER_GENERATOR_V2.resource(), cluster, spec={"providerConfig": pinned})
        try:
            generator = await bench.ready(GENERATOR.resource(), "maker", valid)
            await bench.ready(CLUSTER_GENERATOR_V2.resource(), cluster, valid)
        finally:
            await bench.delete(CLUSTER_GENERATOR_V2.resource(), cluster)

    assert generator["status"]["operations"] == ["GENERATE"]
    assert "capabilities" not in generator["status"]


@pytest.mark.parametrize(
    ("kind", "scope", "namespaced", "expected"),
    [
        pytest.param(CLUSTER_SECRET_STORE_V2, "ProviderNamespace", True, ("True", "Valid"), id="pinned, R89 R91"),
        pytest.param(
            CLUSTER_SECRET_STORE_V2,
            "ManifestNamespace",
            False,
            ("Unknown", "ReferentAuthUnverified"),
            id="of the user, R89 R94",
        ),
        pytest.param(
            CLUSTER_SECRET_STORE_V2,
            "ProviderNamespace",
            False,
            ("False", "ConfigNamespaceRequired"),
            id="pinned to nothing",
        ),
        pytest.param(CLUSTER_PROVIDER, "ProviderNamespace", True, ("True", "Valid"), id="ClusterProvider"),
    ],
)
async def test_cluster_stores_by_authentication_scope(
    bench: Bench, kind: Any, scope: str, namespaced: bool, expected: tuple[str, str]
) -> None:
    name, home = unique("store"), {"namespace": bench.namespace} if namespaced else {}
    config = {"providerRef": {"kind": "Backend", "name": "one", **home}}
    spec = config if kind is CLUSTER_PROVIDER else {"providerConfig": config}
    async with bench.operator():
        await bench.install(scripted())
        await bench.create(BACKENDS, "one", spec={"url": "https://backend"})
        await bench.create(kind.resource(), name, spec={**spec, "authenticationScope": scope})
        try:
            store = await bench.ready(
                kind.resource(), name, lambda condition: (condition.status, condition.reason) == expected
            )
        finally:
            await bench.delete(kind.resource(), name)

    if expected[0] != "False":
        assert store["status"]["operations"] == ["FIND_BY_NAME", "GET", "GET_MAP", "NOT_FOUND_SEMANTICS"]


async def test_a_v1_cluster_store_with_its_users_credentials_is_valid(bench: Bench) -> None:
    """Authentication as the caller: it is unknown until the store is used, so the provider is not even asked."""
    name, provider = unique("vault"), scripted()
    provider.kinds = (replace(provider.kinds[0], v1_provider_key="vault"),)
    async with bench.operator():
        await bench.install(provider)
        await bench.create(SECRETS, "token", stringData={"token": "t"})
        await bench.create(CLUSTER_STORES, name, spec={"provider": {"vault": VAULT}})
        await bench.create(STORES, "own", spec={"provider": {"vault": VAULT}})
        try:
            store = await bench.ready(CLUSTER_STORES, name, valid)
            await bench.ready(STORES, "own", valid)
        finally:
            await bench.delete(CLUSTER_STORES, name)

    assert store["status"]["capabilities"] == "ReadOnly"
    asked = {(ref.namespace, ref.name) for ref in provider.validated}
    assert (bench.namespace, "own") in asked
    assert ("", name) not in asked


# --- what the provider says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        pytest.param(
            Validation(ValidationState.UNKNOWN, error=ProviderError(ErrorReason.BACKEND_ERROR, "cannot tell")),
            ("True", "ValidationUnknown", "cannot tell"),
            id="unknown with an error",
        ),
        pytest.param(
            Validation(
                ValidationState.INVALID, error=ProviderError(ErrorReason.CREDENTIALS_REJECTED, "the token is refused")
            ),
            ("False", "InvalidProviderConfig", "AuthenticationFailed: the token is refused"),
            id="refused credentials, R117",
        ),
    ],
)
async def test_the_providers_opinion_is_shown(
    bench: Bench, validation: Validation, expected: tuple[str, str, str]
) -> None:
    async with bench.operator():
        await bench.install(answering(validation))
        await bench.create(STORES, "fake", spec=FAKE)

        await bench.ready(STORES, "fake", lambda c: (c.status, c.reason, c.message) == expected)


async def test_the_providers_own_conditions_are_mirrored(bench: Bench) -> None:
    """R194."""
    quota = ConditionReport("QuotaLow", "True", "Almost", "10 calls left")
    async with bench.operator():
        await bench.install(answering(Validation(ValidationState.READY, conditions=(quota,))))
        await bench.create(STORES, "fake", spec=FAKE)

        store = await bench.ready(STORES, "fake", valid)

    shown = {condition["type"]: condition["message"] for condition in store["status"]["conditions"]}
    assert shown["ProviderQuotaLow"] == "10 calls left"


# --- PushSecrets -----------------------------------------------------------------------------------------------------


async def test_a_store_waits_for_push_secrets_that_will_delete(bench: Bench) -> None:
    finalizer = "secretstore.externalsecrets.io/finalizer"

    async def finalizers() -> list[str] | None:
        store = await bench.find(STORES, "fake")
        return None if store is None else store["metadata"].get("finalizers", [])

    async def held() -> bool:
        return await finalizers() == [finalizer]

    async def gone() -> bool:
        return await finalizers() is None

    async with bench.operator():
        await bench.create(STORES, "fake", spec=FAKE)
        spec = {
            "secretStoreRefs": [{"name": "fake"}],
            "selector": {"secret": {"name": "source"}},
            "deletionPolicy": "Delete",
        }
        await bench.create(PUSH_SECRET.resource(), "push", spec=spec)
        await eventually(held, "no finalizer")
        await bench.delete(STORES, "fake")
        assert await held()

        await bench.delete(PUSH_SECRET.resource(), "push")

        await eventually(gone, "the finalizer stayed")
