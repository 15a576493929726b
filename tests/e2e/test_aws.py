"""The whole product on AWS: every form of credentials that v1 manifests have, what fails how, what deletes a Secret."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, environment_of, moto_in_thread, refused
from eso_provider_aws.testing.sessions import AUTH, KEYS, REGION, admin
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.slow

EXTERNAL_SECRETS, STORES = EXTERNAL_SECRET.resource(), SECRET_STORE.resource()
CLUSTER_STORES, PUSH_SECRETS = CLUSTER_SECRET_STORE.resource(), PUSH_SECRET.resource()
ACCOUNT = "123456789012"
OFTEN: JsonObject = {"refreshInterval": "1s", "target": {"deletionPolicy": "Delete"}}
OWN = ("AKIAPROCESS0EXAMPLE0", "the keys of the provider process")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with moto_in_thread(tmp_path_factory.mktemp("moto")) as running:
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, front: Front) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    environment = environment_of(front.url, OWN)
    with up_running(tmp_path_factory.mktemp("up-aws"), "--file", str(manifests), environment=environment) as running:
        yield running


@pytest.fixture
def aws(front: Front) -> Iterator[Front]:
    """The front, counting from zero; what a test lets it answer is forgotten afterwards."""
    front.forget()
    yield front
    front.pass_on()


@pytest.fixture
async def team(site: Any) -> str:
    name: str = await site.namespace(f"team-{next(_NUMBERS)}")
    return name


def secret(name: str, namespace: str, **data: str) -> JsonObject:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def store(namespace: str, **block: Any) -> JsonObject:
    aws = {"service": "SecretsManager", "region": REGION, "auth": AUTH} | block
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "SecretStore",
        "metadata": {"name": "aws", "namespace": namespace},
        "spec": {"provider": {"aws": {name: value for name, value in aws.items() if value is not None}}},
    }


def external_secret(namespace: str, name: str = "app", **spec: Any) -> JsonObject:
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"refreshInterval": "1h", "secretStoreRef": {"name": "aws"}, **spec},
    }


def reading(key: str, **ref: Any) -> list[JsonObject]:
    return [{"secretKey": "password", "remoteRef": {"key": key, **ref}}]


def made(front: Front, name: str, value: str = "first", service: str = "secretsmanager") -> Any:
    """A secret that is there; returns the vendor's client."""
    client = admin(service, front.behind)
    client.create_secret(Name=name, SecretString=value)
    return client


def signers(front: Front, name: str) -> set[str]:
    """Return the keys that requested a secret."""
    return {one.key_id for one in front.requests if one.body.get("SecretId") == name}


async def failing(site: Any, namespace: str, words: str, name: str = "app") -> str:
    """The message of the ExternalSecret's condition once it has these words."""
    seen: list[Any] = []

    async def look() -> str | None:
        found = await site.find(EXTERNAL_SECRETS, name, namespace) or {}
        seen[:] = found.get("status", {}).get("conditions", [])
        return next((one["message"] for one in seen if one["status"] == "False" and words in one["message"]), None)

    try:
        found: str = await site.until(look, "")
    except AssertionError:
        raise AssertionError(f"no condition says {words!r}: {seen}") from None
    return found


# --- credentials ------------------------------------------------------------------------------------------------------

ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader"
CHAIN = {
    "role": ROLE,
    "additionalRoles": [f"arn:aws:iam::{ACCOUNT}:role/hop"],
    "externalID": "shared-with-the-owner",
    "sessionTags": [{"key": "team", "value": "blue"}],
    "transitiveTagKeys": ["team"],
}
ANNOTATED = {"eks.amazonaws.com/role-arn": ROLE}


@pytest.mark.parametrize(
    ("block", "signed_by", "logins"),
    [
        pytest.param({}, KEYS[0], [], id="keys of a Secret"),
        pytest.param({"auth": None}, OWN[0], [], id="the identity of the provider process"),
        pytest.param({"auth": None, "role": ROLE}, "", ["AssumeRole"], id="a role, assumed by the provider process"),
        pytest.param(CHAIN, "", ["AssumeRole", "AssumeRole"], id="two roles with external id and tags"),
        pytest.param(
            {"auth": {"jwt": {"serviceAccountRef": {"name": "reader"}}}},
            "",
            ["AssumeRoleWithWebIdentity"],
            id="the role that a service account's annotation names",
        ),
    ],
)
async def test_a_v1_store_works_unedited_with(  # noqa: PLR0917 - a table
    block: JsonObject, signed_by: str, logins: list[str], site: Any, aws: Front, team: str
) -> None:
    made(aws, f"{team}/db", json.dumps({"user": "anna", "password": "first"}))
    metadata = {"name": "reader", "namespace": team, "annotations": ANNOTATED}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    roles = {**block, "role": f"{ROLE}-{team}"} if "role" in block else block  # another one in each test

    await site.apply(secret("aws", team, id=KEYS[0], key=KEYS[1]), account, store(team, **roles))
    await site.apply(external_secret(team, data=reading(f"{team}/db", property="password")))

    await site.ready(STORES, "aws", team)
    await site.secret("app", team, lambda text: text == {"password": "first"})
    asked = [one.operation for one in aws.requests if one.operation.startswith("AssumeRole")]
    assert asked == logins
    if signed_by:
        assert signers(aws, f"{team}/db") == {signed_by}
    if block is CHAIN:
        last = [one.body for one in aws.requests if one.operation == "AssumeRole"][-1]
        assert last["ExternalId"] == "shared-with-the-owner"
        assert last["TransitiveTagKeys.member.1"] == "team"
        assert (last["Tags.member.1.Key"], last["Tags.member.1.Value"]) == ("team", "blue")


async def test_a_cluster_store_whose_keys_come_from_the_namespace_of_its_user_shares_nothing(
    site: Any, aws: Front
) -> None:
    red, blue = [await site.namespace(f"{color}-{next(_NUMBERS)}") for color in ("red", "blue")]
    shared = f"shared-{red}"
    own = store("")
    await site.apply({**own, "kind": "ClusterSecretStore", "metadata": {"name": shared}})
    made(aws, f"{red}/db", "of both")
    ref: JsonObject = {"secretStoreRef": {"name": shared, "kind": "ClusterSecretStore"}}
    for namespace in (red, blue):
        await site.apply(secret("aws", namespace, id=f"AKIA{namespace.upper()}", key="its own"))
        await site.apply(external_secret(namespace, data=reading(f"{red}/db"), **ref))

    for namespace in (red, blue):
        await site.secret("app", namespace, lambda text: text == {"password": "of both"})

    await site.ready(CLUSTER_STORES, shared)
    assert signers(aws, f"{red}/db") == {f"AKIA{red.upper()}", f"AKIA{blue.upper()}"}


# --- what is read -----------------------------------------------------------------------------------------------------


async def test_members_versions_stages_and_tags_are_read_as_v1_manifests_say(site: Any, aws: Front, team: str) -> None:
    client = made(aws, f"{team}/db", json.dumps({"user": "anna", "password": "first"}))
    first = client.describe_secret(SecretId=f"{team}/db")["VersionIdsToStages"]
    client.put_secret_value(SecretId=f"{team}/db", SecretString=json.dumps({"user": "anna", "password": "second"}))
    client.tag_resource(SecretId=f"{team}/db", Tags=[{"Key": "team", "Value": "blue"}])
    wanted = {
        "now": {"property": "password"},
        "before": {"property": "password", "version": "AWSPREVIOUS"},
        "by-id": {"property": "password", "version": f"uuid/{next(iter(first))}"},
        "tag": {"property": "team", "metadataPolicy": "Fetch"},
    }
    data = [{"secretKey": name, "remoteRef": {"key": f"{team}/db", **ref}} for name, ref in wanted.items()]
    await site.apply(secret("aws", team, id=KEYS[0], key=KEYS[1]), store(team))

    await site.apply(external_secret(team, data=data, dataFrom=[{"extract": {"key": f"{team}/db"}}]))

    values = {"now": "second", "before": "first", "by-id": "first", "tag": "blue"}
    await site.secret("app", team, lambda text: text == {**values, "user": "anna", "password": "second"})


async def test_45_secrets_of_one_externalsecret_cost_three_calls(site: Any, aws: Front, team: str) -> None:
    for number in range(45):
        made(aws, f"{team}/{number}", f"value {number}")
    await site.apply(secret("aws", team, id=KEYS[0], key=KEYS[1]), store(team))
    await site.ready(STORES, "aws", team)
    data = [{"secretKey": f"k{number}", "remoteRef": {"key": f"{team}/{number}"}} for number in range(45)]
    aws.forget()

    await site.apply(external_secret(team, data=data))

    await site.secret("app", team, lambda text: len(text) == 45)
    assert aws.count("BatchGetSecretValue") == 3
    assert not [one for one in aws.requests if str(one.body.get("SecretId", "")).startswith(f"{team}/")]


# --- what fails -------------------------------------------------------------------------------------------------------


async def test_a_denial_says_what_to_allow_and_equal_denials_change_nothing(site: Any, aws: Front, team: str) -> None:
    made(aws, f"{team}/db", "the value")
    await site.apply(secret("aws", team, id=KEYS[0], key=KEYS[1]), store(team))
    await site.apply(external_secret(team, data=reading(f"{team}/db"), **OFTEN))
    await site.secret("app", team, lambda text: text == {"password": "the value"})

    def denied(asked: RecordedRequest) -> StubResponse | None:
        """As the service says it, with another request id every time."""
        who = f"arn:aws:iam::{ACCOUNT}:user/jane-doe"
        words = f"User: {who} is not authorized to perform: secretsmanager:GetSecretValue ({next(_NUMBERS)})"
        return refused("AccessDeniedException", words) if asked.body.get("SecretId") == f"{team}/db" else None

    aws.respond("GetSecretValue", denied)
    message = await failing(site, team, f'secret "{team}/db" in {REGION}')
    before = await site.find(EXTERNAL_SECRETS, "app", team)
    tried = aws.count("GetSecretValue")

    async def tried_again() -> bool:
        return aws.count("GetSecretValue") >= tried + 2

    await site.until(tried_again, "a denied read is not tried again")

    after = await site.find(EXTERNAL_SECRETS, "app", team)
    assert after["status"]["conditions"] == before["status"]["conditions"]
    assert "GetSecretValue" in message
    assert "secretsmanager:GetSecretValue" in message
    assert [word for word in (KEYS[0], "jane-doe", "id-of-the-request", "the value") if word in message] == []
    assert await site.find(SECRETS, "app", team) is not None


async def test_a_secret_that_is_marked_for_deletion_is_gone_for_deletion_policies(
    site: Any, aws: Front, team: str
) -> None:
    client = made(aws, f"{team}/db")
    await site.apply(secret("aws", team, id=KEYS[0], key=KEYS[1]), store(team))
    await site.apply(external_secret(team, data=reading(f"{team}/db"), **OFTEN))
    await site.secret("app", team, lambda text: text)

    client.delete_secret(SecretId=f"{team}/db", RecoveryWindowInDays=7)

    await site.gone(SECRETS, "app", team)


async def test_rejected_keys_are_the_stores_fault_and_say_so_without_showing_them(
    site: Any, aws: Front, team: str
) -> None:
    words = "<ErrorResponse><Error><Code>InvalidClientTokenId</Code><Message>no</Message></Error></ErrorResponse>"
    key = f"AKIAWRONG{next(_NUMBERS)}"
    aws.respond("GetCallerIdentity", lambda asked: StubResponse(403, words.encode()) if asked.key_id == key else None)

    await site.apply(secret("aws", team, id=key, key="wrong"), store(team))

    async def condition() -> JsonObject | None:
        found = await site.find(STORES, "aws", team) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((one for one in conditions if (one["type"], one["status"]) == ("Ready", "False")), None)

    told = await site.until(condition, "the store is not refused")
    assert "does not accept the credentials" in told["message"]
    assert key not in told["message"]


# --- v2 ---------------------------------------------------------------------------------------------------------------


async def test_the_kind_of_the_proposal_serves_a_v2_store_R88(site: Any, aws: Front, team: str) -> None:  # noqa: N802 - the row's name
    """The example of the proposal, but for its address, which belongs to a cluster, and its namespace."""
    v2_store, config = yaml.safe_load_all((EXAMPLES / "stores-v2" / "secretstore.yaml").read_text())
    for one in (v2_store, config):
        one["metadata"]["namespace"] = team
    v2_store["spec"]["providerConfig"] = {"providerRef": {"kind": "AWSSecretManager", "name": "my-aws-store"}}
    del v2_store["spec"]["controller"], config["status"]
    admin("secretsmanager", aws.behind, region="eu-central-1").create_secret(Name=f"{team}/db", SecretString="first")
    ref = {"apiVersion": v2_store["apiVersion"], "kind": "SecretStore", "name": "my-aws-store"}

    await site.apply(secret("awssm-secret", team, **{"access-key": KEYS[0], "secret-access-key": KEYS[1]}))
    await site.apply(config, v2_store, external_secret(team, secretStoreRef=ref, data=reading(f"{team}/db")))

    await site.secret("app", team, lambda text: text == {"password": "first"})
    await site.ready(EXTERNAL_SECRETS, "app", team)


async def test_a_kind_of_its_own_is_named_without_a_store_R184(site: Any, aws: Front, team: str) -> None:  # noqa: N802 - the row's name
    made(aws, f"{team}/db")
    config = {
        "apiVersion": "aws.provider.external-secrets.io/v2alpha1",
        "kind": "SecretsManager",
        "metadata": {"name": "blue", "namespace": team},
        "spec": {"region": REGION, "prefix": f"{team}/"},
    }
    ref = {"apiVersion": config["apiVersion"], "kind": "SecretsManager", "name": "blue"}

    await site.apply(config, external_secret(team, secretStoreRef=ref, data=reading("db")))

    await site.secret("app", team, lambda text: text == {"password": "first"})


# --- generators -------------------------------------------------------------------------------------------------------


def registry_login(_asked: RecordedRequest) -> StubResponse:
    """A token that lives for twelve hours; those of moto ended in 2015."""
    ends = SystemClock().now().timestamp() + 12 * 3600
    endpoint = f"https://{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"
    told = {"authorizationToken": base64.b64encode(b"AWS:of-the-registry").decode(), "expiresAt": ends}
    body = json.dumps({"authorizationData": [{**told, "proxyEndpoint": endpoint}]})
    return StubResponse(200, body.encode(), {"Content-Type": "application/x-amz-json-1.1"})


async def test_the_registry_login_of_the_source_documents_becomes_a_pull_secret(site: Any, aws: Front) -> None:
    aws.respond("GetAuthorizationToken", registry_login)
    keys = {"access-key-id": KEYS[0], "secret-access-key": KEYS[1]}
    await site.apply(secret("aws-credentials", "production", **keys))

    await site.apply_example("guide/generator-ecr.yaml")

    await site.ready(EXTERNAL_SECRETS, "ecr-pull-secret", "production")
    made = await site.secret("ecr-registry-credentials", "production", lambda text: text)
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    (login,) = json.loads(made["text"][".dockerconfigjson"])["auths"].values()
    assert login == {"username": "AWS", "password": "of-the-registry"}


# --- the guide --------------------------------------------------------------------------------------------------------

GUIDE = EXAMPLES.parent / "docs" / "guides" / "providers" / "aws.md"
READY = {
    STORES: ("aws", "aws-irsa", "aws-role", "parameters", "certificates"),
    EXTERNAL_SECRETS: ("database", "direct", "settings", "everything", "tagged", "registry", "session", "told"),
    PUSH_SECRETS: ("generated", "parameter"),
}


async def test_every_manifest_of_the_guide_is_applied_and_becomes_ready(site: Any, aws: Front) -> None:
    aws.respond("GetAuthorizationToken", registry_login)
    database = json.dumps({"user": "app", "password": "correct-horse"})
    secrets, parameters = admin("secretsmanager", aws.behind), admin("ssm", aws.behind)
    secrets.create_secret(Name="app/db", SecretString=database, Tags=[{"Key": "team", "Value": "blue"}])
    parameters.put_parameter(Name="/app/host", Value="first", Type="String")
    parameters.put_parameter(Name="/app/host", Value="second", Type="String", Overwrite=True)
    admin("sqs", aws.behind).create_queue(QueueName="external-secrets")
    await site.namespace("team-a")
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)

    await site.apply(*(document for block in blocks for document in yaml.safe_load_all(block)))

    for name in ("aws-shared", "aws-tagged"):
        await site.ready(CLUSTER_STORES, name)
    for resource, names in READY.items():
        for name in names:
            await site.ready(resource, name, "team-a")
    await site.secret("database", "team-a", lambda text: text == json.loads(database))
    await site.secret("settings", "team-a", lambda text: text == {"host": "second", "before": "first"})
    await site.secret("tagged", "team-a", lambda text: "app_db" in text)
    await site.secret("session", "team-a", lambda text: "session_token" in text)
    assert secrets.get_secret_value(SecretId="app/pushed")["SecretString"] == "example"
    pushed = parameters.get_parameter(Name="/app/pushed", WithDecryption=True)["Parameter"]
    assert (pushed["Type"], pushed["Value"]) == ("SecureString", "example")
