"""The whole product on Google Secret Manager: every form of credentials that v1 manifests have, conditions, pushes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_gcp.testing.sessions import EMAIL, PROJECT, Google
from eso_provider_gcp.testing.tokens import Tokens
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS, STORES, PUSH_SECRETS = EXTERNAL_SECRET.resource(), SECRET_STORE.resource(), PUSH_SECRET.resource()
POOL = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
CLUSTER = {"clusterProjectID": "cluster-project", "clusterLocation": "europe-west3", "clusterName": "main"}
ACCOUNT = {"serviceAccountRef": {"name": "reader"}}
_NUMBERS = itertools.count(1)


class Everyone(set[str]):
    """Trusts the tokens of all identity providers, and keeps them."""

    def __contains__(self, subject: object) -> bool:
        self.add(str(subject))
        return True


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    with Google.started() as running:
        running.tokens.subjects = Everyone()
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, google: Google) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    folder = tmp_path_factory.mktemp("up-gcp")
    environment = dict(google.environment) | {"GCE_METADATA_IP": google.environment["GCE_METADATA_HOST"]}
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


@pytest.fixture
async def team(site: Any) -> str:
    name: str = await site.namespace(f"team-{next(_NUMBERS)}")
    return name


def named(kind: str, name: str, namespace: str, version: str = "v1", **rest: Any) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


def store(namespace: str, auth: JsonObject | None) -> JsonObject:
    block = {"projectID": PROJECT, **({"auth": auth} if auth else {})}
    return named("SecretStore", "gcp", namespace, "external-secrets.io/v1", spec={"provider": {"gcpsm": block}})


def external_secret(namespace: str, key: str) -> JsonObject:
    data = [{"secretKey": "password", "remoteRef": {"key": key, "property": "password"}}]
    spec = {"refreshInterval": "1h", "secretStoreRef": {"name": "gcp"}, "data": data}
    return named("ExternalSecret", "app", namespace, "external-secrets.io/v1", spec=spec)


def prepared(google: Google, team: str) -> list[JsonObject]:
    """The objects to which the stores of the table refer."""
    annotations = {"iam.gke.io/gcp-service-account": EMAIL}
    account = named("ServiceAccount", "reader", team)
    account["metadata"]["annotations"] = annotations
    configuration = {
        "type": "external_account",
        "audience": POOL,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.tokens.url}/v1/token",
        "credential_source": {"url": f"{google.tokens.url}/issue", "format": {"type": "text"}},
    }
    keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "example"}
    return [
        account,
        named("Secret", "gcp", team, stringData={"key.json": google.key()}),
        named("Secret", "aws", team, stringData=keys),
        named("ConfigMap", "gcp", team, data={"config": json.dumps(configuration)}),
    ]


@pytest.mark.parametrize(
    ("auth", "who"),
    [
        pytest.param(
            {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}, EMAIL, id="a key"
        ),
        pytest.param({"workloadIdentity": {**ACCOUNT, **CLUSTER}}, EMAIL, id="GKE workload identity"),
        pytest.param(
            {"workloadIdentityFederation": {"audience": POOL, **ACCOUNT}},
            EMAIL,
            id="the token of an account, federated",
        ),
        pytest.param(
            {
                "workloadIdentityFederation": {
                    "audience": POOL,
                    "awsSecurityCredentials": {"region": "eu-west-1", "awsCredentialsSecretRef": {"name": "aws"}},
                }
            },
            f"federated:{POOL}",
            id="AWS keys, federated",
        ),
        pytest.param(
            {"workloadIdentityFederation": {"credConfig": {"name": "gcp", "key": "config"}}},
            f"federated:{POOL}",
            id="a configuration in a ConfigMap",
        ),
        pytest.param(None, "machine", id="the identity of the provider process"),
    ],
)
async def test_a_v1_store_works_unedited_with(
    auth: JsonObject | None, who: str, site: Any, google: Google, team: str
) -> None:
    google.store(f"{team}-db", b'{"password":"first"}')
    google.tokens.more = lambda asked: (200, b"outside-token") if asked.path == "/issue" else None
    if auth and "credConfig" in auth.get("workloadIdentityFederation", {}):
        federation = {**auth["workloadIdentityFederation"], "externalTokenEndpoint": f"{google.tokens.url}/issue"}
        auth = {"workloadIdentityFederation": federation}

    await site.apply(*prepared(google, team), store(team, auth), external_secret(team, f"{team}-db"))

    await site.ready(STORES, "gcp", team)
    await site.secret("app", team, lambda text: text == {"password": "first"})
    assert callers(google.tokens, google) == {who}


def callers(tokens: Tokens, google: Google) -> set[str]:
    return {tokens.issued[token] for token in google.secrets.tokens}


async def test_the_token_of_an_account_has_the_audience_of_the_cluster(site: Any, google: Google, team: str) -> None:
    google.store(f"{team}-db", b'{"password":"first"}')
    await site.apply(*prepared(google, team), store(team, {"workloadIdentity": {**ACCOUNT, **CLUSTER}}))
    await site.apply(external_secret(team, f"{team}-db"))
    await site.secret("app", team, lambda text: text == {"password": "first"})
    exchanged = google.tokens.requests("identitybindingtoken")[-1].json
    assert exchanged["audience"].startswith("identitynamespace:cluster-project.svc.id.goog:")


async def test_a_condition_names_project_secret_and_role_and_no_value(site: Any, google: Google, team: str) -> None:
    google.store(f"{team}-db", b'{"password":"CANARY"}')
    google.secrets.denied.add("secretmanager.versions.access")
    auth = {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}
    try:
        await site.apply(*prepared(google, team), store(team, auth), external_secret(team, f"{team}-db"))

        async def look() -> str | None:
            found = await site.find(EXTERNAL_SECRETS, "app", team) or {}
            conditions = found.get("status", {}).get("conditions", [])
            return next((one["message"] for one in conditions if "is denied" in one["message"]), None)

        message = await site.until(look, "no condition says that access is denied")
    finally:
        google.secrets.denied.clear()
    assert f'secret "{team}-db" of project "{PROJECT}"' in message
    assert "roles/secretmanager.secretAccessor" in message
    assert "ya29" not in message


async def test_a_secret_is_pushed_and_deleted_with_its_push(site: Any, google: Google, team: str) -> None:
    auth = {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}
    match = {"secretKey": "password", "remoteRef": {"remoteKey": f"{team}-pushed"}}
    spec = {
        "refreshInterval": "1h",
        "deletionPolicy": "Delete",
        "secretStoreRefs": [{"name": "gcp"}],
        "selector": {"secret": {"name": "source"}},
        "data": [{"match": match}],
    }
    source = named("Secret", "source", team, stringData={"password": "pushed"})
    await site.apply(*prepared(google, team), store(team, auth), source)
    await site.apply(named("PushSecret", "app", team, "external-secrets.io/v1alpha1", spec=spec))
    await site.ready(PUSH_SECRETS, "app", team)
    assert google.value(f"{team}-pushed") == b"pushed"
    await site.delete(PUSH_SECRETS, "app", team)
    name = f"/secrets/{team}-pushed"

    async def gone() -> bool:
        return not any(key.endswith(name) for key in google.secrets.model.stored)

    await site.until(gone, "the pushed secret is still there")
