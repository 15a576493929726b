"""The policies of the guide: each is sufficient for its purpose, and none of its actions can be left out.

moto verifies signatures and actions here, as IAM does. It does not check resources of these services, so policies are
tested with all resources. It makes no calls to KMS.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from eso_api.values import SecretBytes
from eso_provider_aws.clients import VARIABLES
from eso_provider_aws.generators import ECRAuthorizationTokenGenerator
from eso_provider_aws.provider import CertificateManager, ParameterStore, SecretsManager
from eso_provider_aws.testing.front import Front, StubResponse, refused
from eso_provider_aws.testing.sessions import admin, context, issued, read
from eso_sdk.backend import Backend
from eso_sdk.testing import InMemory
from eso_sdk.testing.moto import Moto
from eso_sdk.testing.server import envelope
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    Credential,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    MetadataPolicy,
    PushBatch,
    PushItem,
    RemoteRef,
    SourceSecret,
)

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "guides" / "providers" / "aws.md"
SECTION: Final = PAGE.read_text(encoding="utf-8").partition("\n## What to grant\n")[2].partition("\n## ")[0]
POLICIES: Final[dict[str, Any]] = {
    title: json.loads(text)
    for title, text in re.findall(r"^### (.+?)\n.*?^```json\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
}
UNPROVEN: Final = {"KMS keys", "Detect changes with listings", "Detect changes with a queue"}
"""moto needs no right for KMS. A denied queue or list is not an error: the tests of changes show the effect."""
MOTO_NAMES: Final = {"tag:GetResources": "tagging:GetResources"}
"""Actions that moto calls by another name."""
AUTHORITY: Final = "arn:aws:acm-pca:eu-west-1:123456789012:certificate-authority/12345678-1234-1234-1234-123456789012"
POLICY: Final = b'{"Version": "2012-10-17", "Statement": []}'
ALWAYS: Final = "sts:GetCallerIdentity"
"""AWS requires no policy for this call."""
_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Account:
    """An account that verifies who calls, and what for."""

    url: str
    root: tuple[str, str]

    def admin(self, service: str) -> Any:
        return admin(service, self.url, self.root)

    def user(self, policy: dict[str, Any]) -> tuple[str, str]:
        """The keys of a new user that may do only this."""
        return _user(self.admin("iam"), policy)


@dataclass(frozen=True, slots=True)
class Trial:
    """One use of the provider, as a user with the policy that is tried."""

    account: Account
    provider: InMemory
    policy: dict[str, Any]
    keys: tuple[str, str]
    name: str

    def call(self, backend: type[Backend[Any]], **spec: Any) -> Context:
        return context(backend, self.keys, **spec)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with Moto.started(tmp_path_factory.mktemp("verifying")) as moto:
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        root = _user(admin("iam", moto.url), {"Version": "2012-10-17", "Statement": [everything]})
        moto.verify_signatures()
        yield Account(moto.url, root)


def _user(iam: Any, policy: dict[str, Any]) -> tuple[str, str]:
    name = f"user-{next(_NUMBERS)}"
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
    made = iam.create_access_key(UserName=name)["AccessKey"]
    return made["AccessKeyId"], made["SecretAccessKey"]


def granting(title: str, *, without: str = "") -> dict[str, Any]:
    """A policy of the page for all resources, or all but one action of it."""
    statements = []
    for statement in POLICIES[title]["Statement"]:
        tags = [action for action in statement["Action"] if action != without] or [ALWAYS]
        actions = [MOTO_NAMES.get(action, action) for action in tags]
        statements.append({"Effect": statement["Effect"], "Action": actions, "Resource": "*"})
    return {"Version": "2012-10-17", "Statement": statements}


# --- the uses --------------------------------------------------------------------------------------------------------


async def values(trial: Trial, call: Context, *refs: RemoteRef | str) -> list[bytes]:
    """Read values; raise an error if a read is denied."""
    found = []
    for outcome in await read(trial.provider, call, *refs):
        if isinstance(outcome, ProviderError):
            raise outcome
        found.append(outcome)
    return found


async def complained(trial: Trial, call: Context) -> None:
    """Raise the error of the validation, if any."""
    for condition in (await trial.provider.validate(call)).conditions:
        raise ProviderError(ErrorReason.PERMISSION_DENIED, condition.message)


async def pushed_and_deleted(trial: Trial, call: Context, key: str, *metadata: dict[str, Any]) -> None:
    """Create, change value and tags, delete; raise an error if a call is denied."""
    for number, spec in enumerate(metadata or ({"tags": {"a": "1"}}, {"tags": {"b": "2"}})):
        item = PushItem(
            "only",
            RemoteRef(key),
            SecretBytes(b"%d" % number),
            provider_metadata=envelope(**spec),
            resolved=(Credential("/spec/resourcePolicy/policySourceRef", SecretBytes(POLICY)),),
        )
        (done,) = await trial.provider.push(call, PushBatch((item,)))
        if isinstance(done.outcome, ProviderError):
            raise done.outcome
    await deleted(trial, call, key)


async def deleted(trial: Trial, call: Context, key: str) -> None:
    (gone,) = await trial.provider.delete(call, DeleteBatch((DeleteItem("only", RemoteRef(key)),)))
    if gone.error is not None:
        raise gone.error


async def read_secrets(trial: Trial) -> None:
    secrets = trial.account.admin("secretsmanager")
    names = [f"{trial.name}/{number}" for number in range(3)]
    for name in names:
        secrets.create_secret(Name=name, SecretString=name, Tags=[{"Key": "team", "Value": "blue"}])
    call = trial.call(SecretsManager)
    assert await values(trial, call, *names) == [name.encode() for name in names]
    assert await values(trial, call, names[0]) == [names[0].encode()]
    tags = RemoteRef(names[0], property="team", metadata_policy=MetadataPolicy.FETCH)
    assert await values(trial, call, tags) == [b"blue"]
    await complained(trial, call)


async def find_secrets(trial: Trial) -> None:
    """One that matches is read alone, several are read together."""
    secrets = trial.account.admin("secretsmanager")
    for number in range(3):
        tags = [{"Key": "name", "Value": trial.name}, {"Key": "number", "Value": str(number)}]
        secrets.create_secret(Name=f"{trial.name}/{number}", SecretString="value", Tags=tags)
    call = trial.call(SecretsManager)
    for query, count in (
        (FindQuery(tags={"name": trial.name, "number": "1"}), 1),
        (FindQuery(name_regexp=f"^{trial.name}/"), 3),
    ):
        assert len(await trial.provider.find(call, query)) == count
    await complained(trial, call)


async def push_secrets(trial: Trial) -> None:
    """Deleted, pushed again while it is marked for deletion, deleted again."""
    call = trial.call(SecretsManager)
    for _ in range(2):
        await pushed_and_deleted(trial, call, trial.name)


async def push_settings(trial: Trial) -> None:
    """Policy and replica are added and taken away, by a user who may also push."""
    both = granting("Push and delete secrets")["Statement"] + trial.policy["Statement"]
    keys = trial.account.user({"Version": "2012-10-17", "Statement": both})
    source = {"policySourceRef": {"kind": "ConfigMap", "name": "policy", "key": "json"}}
    spec = {"resourcePolicy": source, "replicationLocations": ["eu-central-1"]}
    call = context(SecretsManager, keys)
    await pushed_and_deleted(trial, call, trial.name, {}, spec, {"replicationLocations": []})


async def read_certificates(trial: Trial) -> None:
    acm = trial.account.admin("acm")
    arn = acm.request_certificate(DomainName="app.example", CertificateAuthorityArn=AUTHORITY)["CertificateArn"]
    (whole,) = await values(trial, trial.call(CertificateManager), arn)
    assert b"PRIVATE KEY" in whole


async def push_certificates(trial: Trial) -> None:
    """Imported, replaced with other tags, deleted."""
    call = trial.call(CertificateManager)
    for tags in ({"a": "1"}, {"b": "2"}):
        made = issued("app.example")
        whole = {"tls.crt": SecretBytes(made.certificates), "tls.key": SecretBytes(made.key_pem)}
        item = PushItem("only", RemoteRef(trial.name), whole, provider_metadata=envelope(tags=tags))
        (done,) = await trial.provider.push(call, PushBatch((item,), SourceSecret("kubernetes.io/tls")))
        if isinstance(done.outcome, ProviderError):
            raise done.outcome
    await deleted(trial, call, trial.name)


async def read_parameters(trial: Trial) -> None:
    parameters = trial.account.admin("ssm")
    names = [f"/{trial.name}/{number}" for number in range(3)]
    for name in names:
        parameters.put_parameter(Name=name, Value=name, Type="SecureString", Tags=[{"Key": "team", "Value": "blue"}])
    call = trial.call(ParameterStore)
    assert await values(trial, call, *names) == [name.encode() for name in names]
    assert await values(trial, call, names[0]) == [names[0].encode()]
    tags = RemoteRef(names[0], property="team", metadata_policy=MetadataPolicy.FETCH)
    assert await values(trial, call, tags) == [b"blue"]
    await complained(trial, call)


async def find_parameters(trial: Trial) -> None:
    trial.account.admin("ssm").put_parameter(Name=f"/{trial.name}", Value="value", Type="String")
    query = FindQuery(path="/app", name_regexp=f"^/{trial.name}$")
    found = await trial.provider.find(trial.call(ParameterStore), query)
    assert [each.key for each in found] == [f"/{trial.name}"]


async def find_parameters_by_tags(trial: Trial) -> None:
    """One that matches is read alone, several are read together."""
    parameters = trial.account.admin("ssm")
    for number in range(3):
        tags = [{"Key": "name", "Value": trial.name}, {"Key": "number", "Value": str(number)}]
        parameters.put_parameter(Name=f"/{trial.name}/{number}", Value="value", Type="String", Tags=tags)
    call = trial.call(ParameterStore)
    for query, count in (({"name": trial.name, "number": "1"}, 1), ({"name": trial.name}, 3)):
        assert len(await trial.provider.find(call, FindQuery(tags=query))) == count
    await complained(trial, call)


async def push_parameters(trial: Trial) -> None:
    await pushed_and_deleted(trial, trial.call(ParameterStore), f"/{trial.name}")


async def log_in_to_registries(trial: Trial) -> None:
    made = await trial.provider.generate(trial.call(ECRAuthorizationTokenGenerator))
    assert made.data["password"].reveal()


async def assume_roles(trial: Trial) -> None:
    name = trial.name.replace("/", "-")
    statement = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    iam = trial.account.admin("iam")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [statement]}))["Role"]
    iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(granting("Read secrets")))
    trial.account.admin("secretsmanager").create_secret(Name=trial.name, SecretString="value")
    assert await values(trial, trial.call(SecretsManager, role=role["Arn"]), trial.name) == [b"value"]


Use = Callable[[Trial], Awaitable[None]]
USES: Final[dict[str, Use]] = {
    "Read secrets": read_secrets,
    "Find secrets": find_secrets,
    "Push and delete secrets": push_secrets,
    "Resource policies and replicas of pushed secrets": push_settings,
    "Read certificates": read_certificates,
    "Push and delete certificates": push_certificates,
    "Read parameters": read_parameters,
    "Find parameters by name": find_parameters,
    "Find parameters by tags": find_parameters_by_tags,
    "Push and delete parameters": push_parameters,
    "Generate registry logins": log_in_to_registries,
    "Assume roles": assume_roles,
}


def test_every_policy_of_the_page_is_tried() -> None:
    assert set(USES) == set(POLICIES) - UNPROVEN


class AsServices(Front):
    """moto refuses in XML. Services of the JSON protocol refuse in JSON."""

    async def _passed(self, request: web.Request, raw: bytes) -> StubResponse:
        response = await super()._passed(request, raw)
        found = re.search(rb"<Code>AccessDenied</Code><Message>(.*?)</Message>", response.body)
        if found is None or "X-Amz-Target" not in request.headers:
            return response
        return refused("AccessDeniedException", found[1].decode())


@pytest.fixture
async def trial(
    account: Account, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[dict[str, Any]], Trial]]:
    async with AsServices.before(account.url) as front:
        for variable in VARIABLES.values():
            monkeypatch.setenv(variable, front.url)

        def made(policy: dict[str, Any]) -> Trial:
            return Trial(account, provider, policy, account.user(policy), f"app/{next(_NUMBERS)}")

        yield made


@pytest.mark.parametrize("title", sorted(USES))
async def test_a_policy_of_the_page_allows_what_it_is_for(title: str, trial: Callable[[dict[str, Any]], Trial]) -> None:
    await USES[title](trial(granting(title)))


@pytest.mark.parametrize(
    ("title", "action"),
    [
        pytest.param(title, action, id=f"{title} without {action}")
        for title in sorted(USES)
        for statement in POLICIES[title]["Statement"]
        for action in statement["Action"]
    ],
)
async def test_no_action_of_a_policy_can_be_left_out_and_the_error_names_it(
    title: str, action: str, trial: Callable[[dict[str, Any]], Trial]
) -> None:
    with pytest.raises(ProviderError, match=f"allow {MOTO_NAMES.get(action, action)}") as failed:
        await USES[title](trial(granting(title, without=action)))

    assert failed.value.reason is ErrorReason.PERMISSION_DENIED
