"""The whole product on clusters as backends: this one and another, by every form of credentials of the guide."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import installed_kinds
from eso_api.pushsecret import PUSH_SECRET
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kubebase.testing.servers import kubeconfig_text
from kuberun.testing.builders import NAMESPACES, SECRETS
from kuberun.testing.localserver import LocalServer
from kuberun.testing.rawapi import RawApi, raw_api
from localkube.access.certificates import Certificates

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "providers" / "kubernetes.md"
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
TEAM = "team-kube"
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    (one.group, one.kind): one
    for one in (
        NAMESPACES,
        SECRETS,
        Resource("", "v1", "configmaps", "ConfigMap"),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource(RBAC, "v1", "roles", "Role"),
        Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
        *(kind.resource() for kind in installed_kinds()),
    )
}
DATABASE = {"password": "only-an-example", "login": '{"user":"app","port":5432}'}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Another cluster."""
    server = LocalServer(tmp_path_factory.mktemp("other"))
    try:
        yield server
    finally:
        server.stop()


def samples(*, elsewhere: bool) -> list[JsonObject]:
    """The manifests of the guide for this or for the other cluster."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    chosen = [block for block in blocks if block.startswith("# in the other cluster") is elsewhere]
    return [document for block in chosen for document in yaml.safe_load_all(block)]


def filled(value: Any, words: dict[str, str]) -> Any:
    """A manifest with the reader's own values in place of the guide's."""
    if isinstance(value, dict):
        return {name: filled(member, words) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(member, words) for member in value]
    if isinstance(value, str):
        return words.get(value.strip(), value)
    return value


async def apply(api: RawApi, *documents: JsonObject) -> None:
    for one in documents:
        group, _, version = one["apiVersion"].rpartition("/")
        known = RESOURCES[group, one["kind"]]
        resource = Resource(group, version, known.plural, known.kind, known.namespaced)
        path = resource.path(one["metadata"].get("namespace", ""), one["metadata"]["name"])
        answer = await api.apply(path, one, manager="people", force=True)
        assert answer.status in (200, 201), answer.body


async def token_of(api: RawApi, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = await api.post(path, {"spec": {"expirationSeconds": 3600}})
    assert answer.status == 201, answer.body
    return str(answer.body["status"]["token"])


@pytest.fixture
async def there(other: LocalServer) -> Any:
    async with raw_api(other.url, other.token, str(other.ca_file)) as api:
        yield api


@pytest.fixture
async def guided(site: Any, other: LocalServer, there: RawApi) -> Any:
    """Everything the guide shows, in both clusters."""
    granting = [
        one for one in samples(elsewhere=False) if one["metadata"].get("namespace", one["metadata"]["name"]) == "shared"
    ]
    first = [one for one in granting if one["kind"] in ("Namespace", "Role", "Secret")]
    await apply(there, *first, *samples(elsewhere=True))
    authority = other.ca_file.read_bytes()
    token = await token_of(there, "shared", "external-secrets")
    pair = Certificates(other._folder / "data" / "pki").issue_client("external-secrets", (), SystemClock().now())
    words = {
        "https://kubernetes.default": site.up.url,
        "https://other.example.com:6443": other.url,
        "TOKEN-OF-THE-OTHER-CLUSTER": token,
        "AUTHORITY-OF-THE-OTHER-CLUSTER": authority.decode(),
        "CERTIFICATE-FOR-THE-OTHER-CLUSTER": pair.certificate.decode(),
        "KEY-FOR-THE-OTHER-CLUSTER": pair.key.decode(),
        "KUBECONFIG-OF-THE-OTHER-CLUSTER": kubeconfig_text(other.url, authority, token),
    }
    here = [filled(one, words) for one in samples(elsewhere=False)]
    # A controller of real clusters puts this ConfigMap into every namespace.
    root = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": TEAM},
        "data": {"ca.crt": site.up.ca_file.read_text()},
    }
    namespaces = [one for one in here if one["kind"] == "Namespace"]
    await apply(site.api, *namespaces, root, *(one for one in here if one["kind"] != "Namespace"))
    return site


async def test_every_manifest_of_the_guide_works(guided: Any) -> None:
    ready = [one for one in samples(elsewhere=False) if one["kind"] in ("ExternalSecret", "PushSecret", "SecretStore")]
    for one in ready:
        await guided.ready(RESOURCES[one["apiVersion"].rpartition("/")[0], one["kind"]], one["metadata"]["name"], TEAM)

    wanted = {"password": "only-an-example", "user": "app", "team": "a"}
    await guided.secret("database", TEAM, lambda text: text == wanted)
    for name in ("database-copy", "database-v2", "from-other-by-token", "from-other-by-certificate"):
        await guided.secret(name, TEAM, lambda text: text == DATABASE)
    await guided.secret("from-other-by-kubeconfig", TEAM, lambda text: text == DATABASE)
    await guided.secret("everything-of-team-a", TEAM, lambda text: set(text) == {"database", "by-name-database"})
    await guided.secret("endpoints", TEAM, lambda text: text == {"database": "db.example.com"})


MARK = {"reconcile.external-secrets.io/managed-by": "external-secrets"}


async def test_pushes_of_the_guide_arrive_with_their_labels(guided: Any) -> None:
    pushed = await guided.secret("service", "shared", lambda text: text == {"token": "only-an-example"})
    await guided.secret("service-copy", "shared", lambda text: set(text) == {"token", "user"})
    await guided.secret("service-elsewhere", "shared-too", lambda text: text == {"token": "only-an-example"})

    assert pushed["metadata"]["labels"] == {"app": "shop", "pushed-by": TEAM, **MARK}


async def test_a_deleted_push_secret_takes_its_value_out_of_the_namespace_it_was_pushed_to(guided: Any) -> None:
    await guided.ready(PUSH_SECRETS, "service-elsewhere", TEAM)
    await apply(guided.api, secret("service-elsewhere", "shared", "not-ours"))

    await guided.delete(PUSH_SECRETS, "service-elsewhere", TEAM)

    await guided.gone(SECRETS, "service-elsewhere", "shared-too")
    assert await guided.find(SECRETS, "service-elsewhere", "shared") is not None


@pytest.mark.parametrize(
    ("name", "elsewhere"), [("database-copy", False), ("from-other-by-token", True)], ids=["this cluster", "another"]
)
async def test_a_change_in_the_source_arrives_long_before_the_interval(
    guided: Any, there: RawApi, name: str, elsewhere: bool
) -> None:
    await guided.secret(name, TEAM, lambda text: "password" in text)
    changed = f"changed-{name}"

    await apply(there if elsewhere else guided.api, secret("database", "shared", changed))

    await guided.secret(name, TEAM, lambda text: text.get("password") == changed)


async def test_a_namespace_whose_account_may_not_read_never_sees_the_value_of_one_that_may(guided: Any) -> None:
    """The same store and key; only the ServiceAccount of the caller's namespace differs."""
    provider = {
        "remoteNamespace": "shared",
        "server": {"url": guided.up.url, "caBundle": base64.b64encode(guided.up.ca_file.read_bytes()).decode()},
        "auth": {"serviceAccount": {"name": "secret-reader"}},
    }
    store = {
        "kind": "ClusterSecretStore",
        "metadata": {"name": "referent"},
        "spec": {"provider": {"kubernetes": provider}},
    }
    outsider = "team-kube-outside"
    documents = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": outsider}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "secret-reader", "namespace": outsider}},
        {"apiVersion": "external-secrets.io/v1", **store},
        copied(TEAM),
        copied(outsider),
    ]
    await apply(guided.api, *documents)

    await guided.secret("referent", TEAM, lambda text: "password" in text)
    message = await refusal(guided, "referent", outsider)

    assert 'grant the verb "get" on "secrets"' in message
    assert 'namespace "shared"' in message
    assert await guided.find(SECRETS, "referent", outsider) is None


def copied(namespace: str) -> JsonObject:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": "referent", "namespace": namespace},
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"name": "referent", "kind": "ClusterSecretStore"},
            "dataFrom": [{"extract": {"key": "database"}}],
        },
    }


async def refusal(site: Any, name: str, namespace: str) -> str:
    """The message of an ExternalSecret that is not ready."""

    async def look() -> str | None:
        found = await site.find(EXTERNAL_SECRETS, name, namespace) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((one["message"] for one in conditions if one["status"] == "False"), None)

    message: str = await site.until(look, f"ExternalSecret {namespace}/{name} is not refused")
    return message


def secret(name: str, namespace: str, password: str) -> JsonObject:
    data = {"password": base64.b64encode(password.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }
