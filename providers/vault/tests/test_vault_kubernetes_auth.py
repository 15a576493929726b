"""The kubernetes and jwt methods with tokens of ServiceAccounts, which a real API server issues and reviews."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_vault.auth import methods
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import TRUSTED, opened, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Token
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server whose role `app` trusts ServiceAccount `app` of one namespace."""

    bao: OpenBao
    api: RawApi
    namespace: str
    mount: str

    def spec(self, **auth: Any) -> dict[str, Any]:
        return {
            "server": self.bao.url,
            "path": self.mount,
            "auth": {"kubernetes": {"role": "app", "mountPath": self.mount, **auth}},
        }

    async def account(self, name: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        made = await self.api.post(path, {"metadata": {"name": name}})
        assert made.status == 201
        return str(made.body["metadata"]["uid"])

    async def token(self, name: str, *audiences: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        asked = {"spec": {"expirationSeconds": 600, **({"audiences": list(audiences)} if audiences else {})}}
        made = await self.api.post(path, asked)
        assert made.status == 201
        return str(made.body["status"]["token"])


@pytest.fixture
async def cluster(bao: OpenBao, api_server: ApiServer, api: RawApi, namespace: str) -> Cluster:
    mount = f"kubernetes-{next(_NUMBERS)}"
    bao.enable(mount)
    bao.put(mount, "app", {"password": "value"})
    bao.policy(mount, f'path "{mount}/*" {{ capabilities = ["read"] }}')
    bao.enable_auth(mount, "kubernetes")
    config = {
        "kubernetes_host": api_server.url,
        "kubernetes_ca_cert": api_server.ca_file.read_text(),
        "token_reviewer_jwt": api_server.token,
        "disable_local_ca_jwt": True,
    }
    bao.must("POST", f"auth/{mount}/config", config)
    role = {
        "bound_service_account_names": ["app"],
        "bound_service_account_namespaces": [namespace],
        "token_policies": mount,
    }
    bao.must("POST", f"auth/{mount}/role/app", role)
    return Cluster(bao, api, namespace, mount)


async def test_a_requested_token_of_a_service_account_logs_in(cluster: Cluster) -> None:
    await cluster.account("app")
    token = Token(SecretBytes((await cluster.token("app")).encode()))
    spec = cluster.spec(serviceAccountRef={"name": "app"})

    async with opened(spec, {"/auth/kubernetes/serviceAccountRef": token}) as store:
        assert (await read(store, f"{cluster.mount}/data/app")).ok


async def test_a_token_kept_in_a_secret_logs_in(cluster: Cluster) -> None:
    await cluster.account("app")
    spec = cluster.spec(secretRef={"name": "credentials", "key": "token"})

    async with opened(spec, {"/auth/kubernetes/secretRef": await cluster.token("app") + "\n"}) as store:
        assert (await read(store, f"{cluster.mount}/data/app")).ok


async def test_the_token_of_the_providers_own_pod_logs_in(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.account("app")
    file = tmp_path / "token"
    file.write_text(await cluster.token("app"))
    monkeypatch.setattr(methods, "POD_TOKEN", file)

    async with opened(cluster.spec(), process_identity=TRUSTED) as store:
        assert (await read(store, f"{cluster.mount}/data/app")).ok


async def test_without_any_token_the_error_names_what_to_add(cluster: Cluster) -> None:
    async with opened(cluster.spec(), process_identity=TRUSTED) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, f"{cluster.mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND
    assert "serviceAccountRef" in caught.value.message


async def test_another_service_account_is_refused(cluster: Cluster) -> None:
    await cluster.account("stranger")
    token = Token(SecretBytes((await cluster.token("stranger")).encode()))
    spec = cluster.spec(serviceAccountRef={"name": "stranger"})

    async with opened(spec, {"/auth/kubernetes/serviceAccountRef": token}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, f"{cluster.mount}/data/app")

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert 'role "app"' in caught.value.message
    assert "ServiceAccount" in caught.value.message
