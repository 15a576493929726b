"""Logins and dynamic secrets of the guide, on the whole product: operator, Vault provider, OpenBao and PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_vault.testing.openbao import OpenBao, Postgres, database_engine
from eso_testkit.cli.upprocess import UpProcess
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS, STORES = EXTERNAL_SECRET.resource(), SECRET_STORE.resource()
TEAM = "team-vault-auth"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    with OpenBao.started(tmp_path_factory.mktemp("bao")) as server:
        yield server


@pytest.fixture(scope="module")
def database(bao: OpenBao) -> Iterator[Postgres]:
    with database_engine(bao) as server:
        yield server


@pytest.fixture(scope="module")
def role(bao: OpenBao, up: UpProcess) -> tuple[str, str]:
    """Configure the server as the guide says; returns role id and secret id."""
    bao.enable("kv")
    bao.put("kv", "app/db", {"password": "value"})
    bao.policy("external-secrets", 'path "kv/data/app/*" { capabilities = ["read"] }')
    paths = ("sys/leases/revoke", "auth/token/create", "auth/token/revoke-accessor")
    rules = "".join(f'path "{path}" {{ capabilities = ["update"] }}\n' for path in paths)
    bao.policy("dynamic", 'path "database/creds/app" { capabilities = ["read"] }\n' + rules)
    bao.enable_auth("approle", "approle")
    bao.must("POST", "auth/approle/role/app", {"token_policies": "external-secrets,dynamic", "token_ttl": "1h"})
    bao.enable_auth("userpass", "userpass")
    user = {"password": "example", "token_policies": "external-secrets"}
    bao.must("POST", "auth/userpass/users/external-secrets", user)
    bao.enable_auth("kubernetes", "kubernetes")
    trust = {"kubernetes_host": up.url, "kubernetes_ca_cert": up.ca_file.read_text(), "token_reviewer_jwt": up.token}
    bao.must("POST", "auth/kubernetes/config", {**trust, "disable_local_ca_jwt": True})
    bound = {"bound_service_account_names": "vault-reader", "bound_service_account_namespaces": TEAM}
    bao.must("POST", "auth/kubernetes/role/app", {**bound, "token_policies": "external-secrets"})
    bao.enable_auth("jwt", "jwt")
    bao.must("POST", "auth/jwt/config", {"jwt_validation_pubkeys": [_issuer(up)]})
    claims = {"role_type": "jwt", "user_claim": "sub", "bound_audiences": ["vault"]}
    bao.must("POST", "auth/jwt/role/app", {**claims, "token_policies": "external-secrets"})
    role_id = bao.must("GET", "auth/approle/role/app/role-id")["data"]["role_id"]
    return role_id, bao.must("POST", "auth/approle/role/app/secret-id")["data"]["secret_id"]


def _issuer(up: UpProcess) -> str:
    """Return the public key of those who sign tokens of ServiceAccounts."""
    key = serialization.load_pem_private_key((up.data / "service-account.key").read_bytes(), password=None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


async def test_every_manifest_of_the_guide_is_applied_and_those_with_a_backend_here_work(
    site: Any, bao: OpenBao, database: Postgres, role: tuple[str, str]
) -> None:
    given = {
        "https://vault.example.com:8200": bao.url,
        "hvs.example": bao.token("external-secrets", "dynamic", no_parent=True, period="24h"),
        "example-role-id": role[0],
        "example-secret-id": role[1],
    }
    if await site.find(NAMESPACES, TEAM) is None:
        await site.namespace(TEAM)

    await site.apply(*site.guide("vault-auth", TEAM, given))

    for name in ("with-token", "with-approle", "openbao-with-approle", "with-userpass", "with-kubernetes", "with-jwt"):
        await site.ready(STORES, name, TEAM)
    made = await site.secret("database-user", TEAM, lambda text: set(text) == {"username", "password"})
    assert database.accepts(made["text"]["username"], made["text"]["password"])
    child = await site.secret("child-token", TEAM, lambda text: "client_token" in text)
    assert bao.call("GET", "kv/data/app/db", token=child["text"]["client_token"])[0] == 200


async def test_a_generator_logs_in_with_a_service_account(site: Any, bao: OpenBao, role: tuple[str, str]) -> None:
    del role
    if await site.find(NAMESPACES, TEAM) is None:
        await site.namespace(TEAM)
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "vault-reader", "namespace": TEAM},
    }
    auth = {"kubernetes": {"role": "app", "serviceAccountRef": {"name": "vault-reader"}}}
    generator = {
        "apiVersion": "generators.external-secrets.io/v1alpha1",
        "kind": "VaultDynamicSecret",
        "metadata": {"name": "read", "namespace": TEAM},
        "spec": {"path": "kv/data/app/db", "provider": {"server": bao.url, "auth": auth}},
    }
    source = {"generatorRef": {"kind": "VaultDynamicSecret", "name": "read"}}
    external = {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": "read", "namespace": TEAM},
        "spec": {"refreshInterval": "1h", "target": {"name": "read"}, "dataFrom": [{"sourceRef": source}]},
    }

    await site.apply(account, generator, external)

    await site.secret("read", TEAM, lambda text: text.get("data") == '{"password":"value"}')


async def test_a_lease_survives_a_killed_provider_and_ends_with_its_external_secret(
    site: Any, bao: OpenBao, database: Postgres, role: tuple[str, str]
) -> None:
    team = await site.namespace(f"leases-{next(_NUMBERS)}")
    given = {"https://vault.example.com:8200": bao.url, "example-role-id": role[0], "example-secret-id": role[1]}
    wanted = {"vault-approle", "database", "database-user"}
    await site.apply(*(one for one in site.guide("vault-auth", team, given) if one["metadata"]["name"] in wanted))
    made = (await site.secret("database-user", team, lambda text: "username" in text))["text"]
    assert database.accepts(made["username"], made["password"])

    before = site.up.component("eso_cli.serving vault")
    site.kill("eso_cli.serving vault")
    await site.started_again("eso_cli.serving vault", before)
    assert database.accepts(made["username"], made["password"])
    await site.delete(EXTERNAL_SECRETS, "database-user", team)

    async def is_revoked() -> bool:
        return made["username"] not in database.users()

    await site.until(is_revoked, "the database user is still there")
