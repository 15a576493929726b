"""Connections of a store to its cluster: each form of credentials, authorities, and rejected configurations."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from eso_api.references import ServiceAccountSelector
from eso_api.stores.kubernetes import KubernetesAuth, KubernetesProvider
from eso_api.values import SecretBytes
from eso_provider_kubernetes.clusterstore import connect
from eso_provider_kubernetes.provider import PROVIDER
from eso_provider_kubernetes.secretstore import KubernetesStore
from eso_sdk.provider import Store
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import Token, ValidationMode, ValidationState
from kubebase.clock import SystemClock
from kubebase.testing.servers import kubeconfig_text
from kuberun.connection import Credential

pytestmark = pytest.mark.live

TOKEN_REF = {"bearerToken": {"name": "credentials", "key": "token"}}
KUBECONFIG_REF = {"authRef": {"name": "remote", "key": "config"}}


async def reads(kube: Any, spec: dict[str, Any], credentials: dict[str, Any], *, namespace: str = "team") -> Any:
    store = kube.store({"remoteNamespace": kube.remote.namespace, **spec}, credentials, namespace=namespace)
    return await store.read("db", property="k")


@pytest.fixture
async def token(kube: Any) -> str:
    await kube.remote.put("db", {"k": "v"})
    return str(await kube.remote.token(("get",)))


async def test_a_bearer_token_with_a_newline_at_its_end(kube: Any, token: str) -> None:
    spec = {"server": kube.remote.connection, "auth": {"token": TOKEN_REF}}

    assert await reads(kube, spec, {"/auth/token/bearerToken": f"{token}\n"}) == "v"


async def test_a_service_account(kube: Any, token: str) -> None:
    spec = {"server": kube.remote.connection, "auth": {"serviceAccount": {"name": "reader"}}}
    sent = Token(SecretBytes(token.encode()), datetime.now(UTC) + timedelta(hours=1))

    assert await reads(kube, spec, {"/auth/serviceAccount": sent}) == "v"


async def test_a_refused_token_of_a_service_account_is_replaced_by_the_newest_one_sent() -> None:
    """Tokens expire after an hour, sessions do not."""

    class Sent(Store[KubernetesProvider]):
        text = "first"

        def __init__(self) -> None:
            """Hold nothing else of a session."""

        def token(self, reference: ServiceAccountSelector) -> Token:
            del reference
            return Token(SecretBytes(self.text.encode()))

    sent = Sent()
    auth = KubernetesAuth(service_account=ServiceAccountSelector(name="reader"))
    connection = await connect(KubernetesProvider(auth=auth), sent, SystemClock())
    first = await connection.credentials.current()
    assert await connection.credentials.refreshed(first) is None

    sent.text = "second"

    assert await connection.credentials.refreshed(first) == Credential("Bearer second")


async def test_authorities_from_a_config_map_or_secret(kube: Any, token: str) -> None:
    server = {"url": kube.remote.server.url, "caProvider": {"type": "ConfigMap", "name": "ca", "key": "ca.crt"}}
    spec = {"server": server, "auth": {"token": TOKEN_REF}}
    credentials = {"/auth/token/bearerToken": token, "/server/caProvider": kube.remote.server.ca_file.read_bytes()}

    assert await reads(kube, spec, credentials) == "v"


async def test_authorities_that_were_encoded_twice(kube: Any, token: str) -> None:
    twice = base64.b64encode(kube.remote.authority.encode()).decode()
    spec = {"server": {"url": kube.remote.server.url, "caBundle": twice}, "auth": {"token": TOKEN_REF}}

    assert await reads(kube, spec, {"/auth/token/bearerToken": token}) == "v"


async def test_a_server_of_another_authority_is_not_trusted(kube: Any, token: str) -> None:
    spec = {"server": {"url": kube.remote.server.url}, "auth": {"token": TOKEN_REF}}

    error = await reads(kube, spec, {"/auth/token/bearerToken": token})

    assert error.reason.value == "BACKEND_UNAVAILABLE"
    assert "certificate" in error.message


async def test_authorities_that_are_not_certificates_are_rejected(kube: Any, token: str) -> None:
    bundle = base64.b64encode(b"-----BEGIN nonsense").decode()
    spec = {"server": {"url": kube.remote.server.url, "caBundle": bundle}, "auth": {"token": TOKEN_REF}}
    store = kube.store(spec, {"/auth/token/bearerToken": token})

    validation = await kube.client.validate(store.context)

    assert validation.state is ValidationState.INVALID
    assert "/server/caBundle" in validation.error.message


# --- kubeconfig -------------------------------------------------------------------------------------------------------


def kubeconfig(kube: Any, token: str) -> Any:
    server = kube.remote.server
    return yaml.safe_load(kubeconfig_text(server.url, server.ca_file.read_bytes(), token))


async def test_a_whole_kubeconfig(kube: Any, token: str) -> None:
    text = yaml.safe_dump(kubeconfig(kube, token))

    assert await reads(kube, KUBECONFIG_REF, {"/authRef": text}) == "v"


@dataclass(frozen=True, slots=True)
class Outside:
    """Something a kubeconfig may name outside of itself, and the words of the refusal."""

    entry: str
    field: str
    words: str
    value: object = "/etc/hostname"


PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "id"}


@pytest.mark.parametrize(
    "outside",
    [
        pytest.param(Outside("users", "exec", "an exec plugin", PLUGIN), id="exec"),
        pytest.param(Outside("users", "tokenFile", "the path of a token"), id="token file"),
        pytest.param(Outside("users", "client-certificate", "the path of a client certificate"), id="certificate file"),
        pytest.param(Outside("users", "client-key", "the path of a client key"), id="key file"),
        pytest.param(Outside("users", "auth-provider", "an auth provider", {"name": "gcp"}), id="auth provider"),
        pytest.param(
            Outside("clusters", "certificate-authority", "the path of a certificate authority"), id="authority file"
        ),
    ],
)
@pytest.mark.parametrize("used", [True, False], ids=["in the entry that is used", "in another entry"])
async def test_a_kubeconfig_that_names_programs_or_files_is_refused(
    kube: Any, token: str, outside: Outside, used: bool
) -> None:
    config, entry = kubeconfig(kube, token), outside.entry
    part = entry.removesuffix("s")
    if used:
        config[entry][0][part][outside.field] = outside.value
    else:
        config[entry].append({"name": "other", part: {outside.field: outside.value}})
    store = kube.store(KUBECONFIG_REF, {"/authRef": yaml.safe_dump(config)})

    validation = await kube.client.validate(store.context)

    assert validation.state is ValidationState.INVALID
    assert f"{outside.words} is not allowed" in validation.error.message
    assert token not in validation.error.message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: [", id="no YAML"),
        pytest.param("{}", id="no context"),
        pytest.param("clusters: canary-value", id="of another form"),
        pytest.param("x" * (1 << 20) + "x", id="too large"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_refused_without_quoting_it(kube: Any, text: str) -> None:
    validation = await kube.client.validate(kube.store(KUBECONFIG_REF, {"/authRef": text}).context)

    assert validation.state is ValidationState.INVALID
    assert "/authRef" in validation.error.message
    assert "canary" not in validation.error.message


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        pytest.param({}, "/auth", id="no credentials"),
        pytest.param({"auth": {}}, "/auth", id="auth that names no method"),
        pytest.param({"auth": {"token": TOKEN_REF}, **KUBECONFIG_REF}, "/authRef", id="auth and kubeconfig"),
        pytest.param(
            {"auth": {"token": TOKEN_REF, "serviceAccount": {"name": "x"}}}, "/auth", id="two methods at a time"
        ),
        pytest.param({"auth": {"token": TOKEN_REF}, "server": {"url": "ftp://x"}}, "/server/url", id="another scheme"),
        pytest.param(
            {"auth": {"token": TOKEN_REF}, "server": {"url": "https://u:p@x"}}, "/server/url", id="password in the URL"
        ),
        pytest.param({"auth": {"token": TOKEN_REF}, "server": {"url": "https://x:y"}}, "/server/url", id="bad port"),
    ],
)
async def test_a_wrong_configuration_is_refused_before_anything_is_asked(
    kube: Any, spec: dict[str, Any], pointer: str
) -> None:
    validation = await kube.client.validate(kube.store(spec, {}).context, ValidationMode.STATIC)

    assert validation.state is ValidationState.INVALID
    assert validation.error.message.startswith(f"{pointer}: ")


async def test_a_store_without_authority_is_warned_about(kube: Any) -> None:
    spec = {"auth": {"token": TOKEN_REF}}

    validation = await kube.client.validate(kube.store(spec, {}).context, ValidationMode.STATIC)

    assert validation.state is ValidationState.READY
    assert "caBundle" in validation.warnings[0]


async def test_a_cluster_scoped_store_has_to_name_the_namespace_of_its_token(kube: Any, token: str) -> None:
    spec = {"server": kube.remote.connection, "auth": {"token": TOKEN_REF}}

    error = (
        await kube.client.validate(kube.store(spec, {"/auth/token/bearerToken": token}, namespace="").context)
    ).error

    assert error.reason.value == "CONFIG_INVALID"
    assert "/auth/token/bearerToken/namespace" in error.message


@pytest.mark.parametrize("form", ["server.url", "kubeconfig"])
async def test_an_address_that_stores_may_not_reach_is_refused_in_both_forms(kube: Any, token: str, form: str) -> None:
    spec: dict[str, Any] = {"server": kube.remote.connection, "auth": {"token": TOKEN_REF}}
    credentials = {"/auth/token/bearerToken": token}
    if form == "kubeconfig":
        spec, credentials = dict(KUBECONFIG_REF), {"/authRef": yaml.safe_dump(kubeconfig(kube, token))}
    async with InMemory(PROVIDER) as strict:
        result = await strict.get_one(call_context(KubernetesStore, spec, credentials), "db", property="k")

    assert getattr(result.outcome, "reason", "") == "CONFIG_INVALID"
    assert "--allow-address" in str(result.outcome)
