"""The whole product on OpenBao: operator and Vault provider, what deletes a Secret and what never does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_vault.testing.openbao import OpenBao
from kubebase.meta import JsonObject
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS, PUSH_SECRETS, STORES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource(), SECRET_STORE.resource()
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    with OpenBao.started(tmp_path_factory.mktemp("bao")) as server:
        yield server


@pytest.fixture
def mount(bao: OpenBao) -> str:
    name = f"kv-{next(_NUMBERS)}"
    bao.enable(name)
    return name


@pytest.fixture
async def team(site: Any) -> str:
    name: str = await site.namespace(f"team-{next(_NUMBERS)}")
    return name


def store(bao: OpenBao, mount: str, namespace: str, token: str = "") -> list[JsonObject]:
    """A v1 store as people have it, and the Secret with its token."""
    auth = {"tokenSecretRef": {"name": "vault-token", "key": "token"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "vault-token", "namespace": namespace},
            "stringData": {"token": f"{token or bao.root_token}\n"},
        },
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "SecretStore",
            "metadata": {"name": "vault", "namespace": namespace},
            "spec": {"provider": {"vault": {"server": bao.url, "path": mount, "version": "v2", "auth": auth}}},
        },
    ]


def external_secret(namespace: str, key: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": "app", "namespace": namespace},
        "spec": {
            "refreshInterval": "1s",
            "secretStoreRef": {"name": "vault"},
            "target": {"name": "app", "deletionPolicy": "Delete"},
            "data": [{"secretKey": "password", "remoteRef": {"key": key, "property": "password"}}],
            **spec,
        },
    }


async def failing(site: Any, namespace: str, words: str) -> JsonObject:
    """The ExternalSecret once its condition has these words."""
    seen: list[Any] = []

    async def look() -> JsonObject | None:
        found = await site.find(EXTERNAL_SECRETS, "app", namespace) or {}
        seen[:] = found.get("status", {}).get("conditions", [])
        return found if any(one["status"] == "False" and words in one["message"] for one in seen) else None

    try:
        found: JsonObject = await site.until(look, "")
    except AssertionError:
        raise AssertionError(f"no condition says {words!r}: {seen}") from None
    return found


async def test_a_v1_manifest_syncs_unedited_and_follows_a_change(
    site: Any, bao: OpenBao, mount: str, team: str
) -> None:
    bao.put(mount, "app/db", {"user": "anna", "password": "first"})
    await site.apply(*store(bao, mount, team))
    everything = {"dataFrom": [{"extract": {"key": "app/db"}}]}

    await site.apply(external_secret(team, "app/db", **everything))

    await site.ready(STORES, "vault", team)
    await site.secret("app", team, lambda text: text == {"user": "anna", "password": "first"})
    bao.put(mount, "app/db", {"user": "anna", "password": "second"})
    await site.secret("app", team, lambda text: text["password"] == "second")


async def test_a_denied_path_keeps_the_secret_and_a_deleted_key_removes_it(
    site: Any, bao: OpenBao, mount: str, team: str
) -> None:
    allowed = f'path "{mount}/data/*" {{ capabilities = ["read"] }}\n'
    denied = f'path "{mount}/data/app/*" {{ capabilities = ["deny"] }}\n'
    bao.policy(mount, allowed)
    bao.put(mount, "app/db", {"password": "first"})
    await site.apply(*store(bao, mount, team, bao.token(mount)), external_secret(team, "app/db"))
    await site.secret("app", team, lambda text: text)

    bao.policy(mount, allowed + denied)
    await failing(site, team, f"{mount}/data/app/db")
    assert await site.find(SECRETS, "app", team) is not None

    bao.policy(mount, allowed)
    await site.ready(EXTERNAL_SECRETS, "app", team)
    assert await site.find(SECRETS, "app", team) is not None

    bao.must("DELETE", f"{mount}/metadata/app/db")
    await site.gone(SECRETS, "app", team)


async def test_two_namespaces_with_tokens_of_their_own_never_see_each_others_value(
    site: Any, bao: OpenBao, mount: str
) -> None:
    """One ClusterSecretStore whose token comes from the namespace of its user."""
    red, blue = [await site.namespace(f"{color}-{next(_NUMBERS)}") for color in ("red", "blue")]
    shared = f"shared-{mount}"
    _, own = store(bao, mount, red)
    await site.apply({**own, "kind": "ClusterSecretStore", "metadata": {"name": shared}})
    ref = {"secretStoreRef": {"name": shared, "kind": "ClusterSecretStore"}}
    for namespace in (red, blue):
        bao.put(mount, f"{namespace}/db", {"password": f"of {namespace}"})
        bao.policy(namespace, f'path "{mount}/data/{namespace}/*" {{ capabilities = ["read"] }}')
        token, _ = store(bao, mount, namespace, bao.token(namespace))
        await site.apply(token, external_secret(namespace, f"{namespace}/db", **ref))

    for namespace in (red, blue):
        await site.secret("app", namespace, lambda text, own=namespace: text == {"password": f"of {own}"})

    await site.patch(EXTERNAL_SECRETS, "app", {"spec": external_secret(red, f"{blue}/db", **ref)["spec"]}, red)
    await failing(site, red, f"{mount}/data/{blue}/db")
    await site.secret("app", red, lambda text: text == {"password": f"of {red}"})


async def test_an_unmounted_engine_keeps_the_secret(site: Any, bao: OpenBao, mount: str, team: str) -> None:
    bao.put(mount, "app/db", {"password": "first"})
    await site.apply(*store(bao, mount, team), external_secret(team, "app/db"))
    await site.secret("app", team, lambda text: text)

    bao.disable(mount)

    await failing(site, team, mount)
    assert await site.find(SECRETS, "app", team) is not None


async def test_twelve_properties_are_pushed_as_one_version(site: Any, bao: OpenBao, mount: str, team: str) -> None:
    keys = [f"key-{number}" for number in range(12)]
    source = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "source", "namespace": team},
        "stringData": {key: f"value of {key}" for key in keys},
    }
    push = {
        "apiVersion": "external-secrets.io/v1alpha1",
        "kind": "PushSecret",
        "metadata": {"name": "push", "namespace": team},
        "spec": {
            "refreshInterval": "1s",
            "deletionPolicy": "Delete",
            "secretStoreRefs": [{"name": "vault"}],
            "selector": {"secret": {"name": "source"}},
            "data": [
                {"match": {"secretKey": key, "remoteRef": {"remoteKey": "pushed", "property": key}}} for key in keys
            ],
        },
    }

    await site.apply(*store(bao, mount, team), source, push)

    await site.ready(PUSH_SECRETS, "push", team)
    stored = bao.read(mount, "pushed")
    assert stored["data"] == {key: f"value of {key}" for key in keys}
    assert stored["metadata"]["version"] == 1
    assert stored["metadata"]["custom_metadata"] == {"managed-by": "external-secrets"}
    await site.delete(PUSH_SECRETS, "push", team)

    async def is_gone() -> bool:
        return bao.call("GET", f"{mount}/metadata/pushed")[0] == 404

    await site.until(is_gone, "the pushed key is still there")


# --- the guide --------------------------------------------------------------------------------------------------------


async def test_every_manifest_of_the_guide_is_applied_and_those_with_a_backend_here_become_ready(
    site: Any, bao: OpenBao, team: str
) -> None:
    bao.enable("kv")
    bao.enable("kv-v1", version=1)
    bao.put("kv", "app/db", {"user": "app", "password": "correct-horse"})
    bao.must("POST", "kv/metadata/app/db", {"custom_metadata": {"team": "blue"}})
    for namespace in ("teams", "teams/blue"):
        parent, _, name = namespace.rpartition("/")
        bao.must("POST", f"sys/namespaces/{name}", namespace=parent)
    bao.enable("kv", namespace="teams/blue")
    given = {
        "https://vault.example.com:8200": bao.url,
        "hvs.example": bao.root_token,
    }

    await site.apply(*site.guide("vault", team, given))

    for name in ("vault", "vault-v1", "vault-namespace", "openbao"):
        await site.ready(STORES, name, team)
    for name in ("database", "direct", "everything", "tagged"):
        await site.ready(EXTERNAL_SECRETS, name, team)
    await site.ready(PUSH_SECRETS, "generated", team)
    await site.secret("database", team, lambda text: text == {"user": "app", "password": "correct-horse"})
    await site.secret("tagged", team, lambda text: list(text) == ["app_db"])
    assert bao.read("kv", "app/pushed")["data"] == {"user": "app", "password": "example"}


async def test_the_token_of_a_login_is_revoked_soon_after_store_and_object_are_gone(
    site: Any, bao: OpenBao, mount: str, team: str
) -> None:
    bao.policy(
        mount,
        f'path "{mount}/data/*" {{ capabilities = ["read"] }}\n'
        f'path "{mount}/detailed-metadata/*" {{ capabilities = ["list", "scan"] }}',
    )
    bao.put(mount, "app/db", {"password": "first"})
    bao.enable_auth(mount, "userpass")
    bao.must("POST", f"auth/{mount}/users/anna", {"password": "secret", "token_policies": mount})
    auth = {"userPass": {"path": mount, "username": "anna", "secretRef": {"name": "vault-token", "key": "token"}}}
    credentials, logged_in = store(bao, mount, team, "secret")
    credentials["stringData"] = {"token": "secret"}
    logged_in["spec"]["provider"]["vault"]["auth"] = auth
    await site.apply(credentials, logged_in, external_secret(team, "app/db", refreshInterval="1h"))
    await site.secret("app", team, lambda text: text)
    mark = bao.mark()

    await site.delete(EXTERNAL_SECRETS, "app", team)
    await site.delete(STORES, "vault", team)

    async def revoked() -> bool:
        return bao.audited(mark).revocations == 1

    await site.until(revoked, "the token lives on")


async def test_a_store_of_another_version_is_ready_and_says_so(site: Any, bao: OpenBao, mount: str, team: str) -> None:
    bao.put(mount, "app/db", {"password": "first"})
    credentials, other = store(bao, mount, team)
    other["spec"]["provider"]["vault"]["version"] = "v1"
    both = {
        "data": [{"secretKey": "password", "remoteRef": {"key": "data/app/db", "property": "data.password"}}],
    }

    await site.apply(credentials, other, external_secret(team, "", **both))

    found = await site.ready(STORES, "vault", team)
    await site.secret("app", team, lambda text: text == {"password": "first"})
    conditions = {each["type"]: each["message"] for each in found["status"]["conditions"]}
    assert "set version: v2" in conditions["ProviderVersionMismatch"]


async def test_a_store_whose_token_may_not_scan_shows_no_degraded_push_refresh(
    site: Any, bao: OpenBao, mount: str, team: str
) -> None:
    bao.policy(mount, f'path "{mount}/data/*" {{ capabilities = ["read"] }}')
    bao.put(mount, "app/db", {"password": "first"})
    await site.apply(*store(bao, mount, team, bao.token(mount)), external_secret(team, "app/db"))
    await site.secret("app", team, lambda text: text == {"password": "first"})
    bao.put(mount, "app/db", {"password": "second"})
    await site.secret("app", team, lambda text: text == {"password": "second"})

    found = await site.ready(STORES, "vault", team)

    assert [each["type"] for each in found["status"]["conditions"]] == ["Ready"]


async def test_a_find_in_a_folder_that_does_not_exist_fails_or_deletes_as_the_policy_says(
    site: Any, bao: OpenBao, mount: str, team: str
) -> None:
    bao.put(mount, "app/db", {"password": "first"})
    find = {"data": [], "dataFrom": [{"find": {"path": "app", "name": {"regexp": "."}}}]}
    retain = {"target": {"name": "app", "deletionPolicy": "Retain"}}
    await site.apply(*store(bao, mount, team), external_secret(team, "", **find, **retain))
    await site.secret("app", team, lambda text: text)

    bao.must("DELETE", f"{mount}/metadata/app/db")
    await failing(site, team, 'folder "app" does not exist')
    assert await site.find(SECRETS, "app", team) is not None
    await site.patch(EXTERNAL_SECRETS, "app", {"spec": {"target": {"deletionPolicy": "Delete"}}}, team)

    await site.gone(SECRETS, "app", team)
