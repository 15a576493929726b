"""Every form of auth: what Google is sent for it, and which token the calls carry then."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from eso_api.values import SecretBytes
from eso_provider_gcp.auth import ACCOUNT_ANNOTATION
from eso_provider_gcp.generator import GCRAccessTokenGenerator
from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.sessions import AUTH, EMAIL, KEY, PROJECT, Google, account_token, context
from eso_provider_gcp.testing.tokens import RecordedRequest, StubResponse
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import failure, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, ValidationState
from kubebase.testing.clock import SkippingClock

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
POOL = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
GKE = "/auth/workloadIdentity/serviceAccountRef"
FEDERATION = "/auth/workloadIdentityFederation"


def principal(google: Google) -> str:
    """Return who made the last call to Secret Manager."""
    return google.tokens.issued[google.secrets.tokens[-1]]


async def test_a_key_signs_an_assertion_for_googles_token_service(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    assert await read(provider, context(google), name) == [b"value"]
    (request,) = google.tokens.requests("/token")
    claims = json.loads(base64.urlsafe_b64decode(request.form["assertion"].split(".")[1] + "=="))
    assert request.form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert (claims["iss"], claims["scope"]) == (EMAIL, SCOPE)
    assert claims["aud"] == "https://oauth2.googleapis.com/token"
    assert principal(google) == EMAIL


async def test_a_key_that_google_does_not_know_is_refused_once_for_a_while(
    google: Google, provider: InMemory, name: str
) -> None:
    call = context(google)
    google.tokens.public_keys.clear()
    refused = await failure(provider, call, name)
    assert refused.reason is ErrorReason.CREDENTIALS_REJECTED
    assert refused.message.startswith('Google refuses the service account key in Secret "gcp"')
    again = await failure(provider, call, name)
    assert (again.message, again.retry_after > 0) == (refused.message, True)
    assert len(google.tokens.requests("/token")) == 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("CANARY", id="no JSON"),
        pytest.param('{"client_email":"CANARY"}', id="not complete"),
        pytest.param(
            '{"client_email":"a@b","private_key":"CANARY","token_uri":"https://oauth2.googleapis.com/token"}',
            id="no private key",
        ),
    ],
)
async def test_a_value_that_is_no_key_names_the_field(provider: InMemory, content: str) -> None:
    refused = await failure(
        provider, call_context(SecretManagerStore, {"projectID": PROJECT, "auth": AUTH}, {KEY: content}), "a"
    )
    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert refused.message.startswith(KEY)
    assert "CANARY" not in refused.message


async def test_a_key_cannot_lead_the_provider_to_an_address_inside_its_pod(google: Google, provider: InMemory) -> None:
    inside = google.tokens.url.replace("127.0.0.1", "localhost")
    spec = {"projectID": PROJECT, "auth": AUTH}
    call = call_context(SecretManagerStore, spec, {KEY: google.key(token_uri=f"{inside}/token")})
    refused = await failure(provider, call, "a")
    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert "loopback" in refused.message
    assert not google.tokens.recorded


# --- workload identity of GKE -----------------------------------------------------------------------------------------


def gke(google: Google, project: str = "cluster-project", bound: str = "", **config: str) -> Context:
    """Return a call of a store with workload identity."""
    google.tokens.subjects.add("k8s-token")
    annotations = {ACCOUNT_ANNOTATION: bound} if bound else {}
    token = account_token("k8s-token", audiences=(f"{project}.svc.id.goog",), annotations=annotations)
    identity = {"serviceAccountRef": {"name": "app"}, **config}
    spec = {"projectID": PROJECT, "auth": {"workloadIdentity": identity}}
    return call_context(SecretManagerStore, spec, {GKE: token})


CLUSTER = {"clusterLocation": "europe-west3", "clusterName": "main", "clusterProjectID": "cluster-project"}


async def test_workload_identity_exchanges_the_token_of_the_account(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    assert await read(provider, gke(google, **CLUSTER), name) == [b"value"]
    (request,) = google.tokens.recorded
    assert request.path == "/v1/identitybindingtoken"
    assert request.json == {
        "audience": "identitynamespace:cluster-project.svc.id.goog:https://container.googleapis.com/v1/projects/"
        "cluster-project/locations/europe-west3/clusters/main",
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "scope": SCOPE,
        "subject_token": "k8s-token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    }
    assert principal(google) == "federated:cluster"


async def test_an_annotated_account_acts_as_its_google_account(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"value")
    assert await read(provider, gke(google, bound=EMAIL, **CLUSTER), name) == [b"value"]
    exchange, generate = google.tokens.recorded
    assert exchange.path == "/v1/identitybindingtoken"
    assert generate.path == f"/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"
    assert generate.json == {"scope": [SCOPE]}
    assert principal(google) == EMAIL


async def test_the_metadata_server_tells_what_the_spec_leaves_out(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    google.tokens.facts |= {"instance/attributes/cluster-location": "eu", "instance/attributes/cluster-name": "c1"}
    assert await read(provider, gke(google, project=PROJECT), name) == [b"value"]
    (request,) = google.tokens.requests("identitybindingtoken")
    assert request.json["audience"].endswith(f"/projects/{PROJECT}/locations/eu/clusters/c1")


@pytest.mark.parametrize(
    ("config", "project", "field"),
    [
        pytest.param({"clusterName": "c"}, PROJECT, "/auth/workloadIdentity/clusterLocation", id="no location"),
        pytest.param(CLUSTER, "elsewhere", "/auth/workloadIdentity/clusterProjectID", id="another audience"),
    ],
)
async def test_workload_identity_says_which_field_is_missing(
    google: Google, provider: InMemory, config: dict[str, str], project: str, field: str
) -> None:
    refused = await failure(provider, gke(google, project=project, **config), "a")
    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert refused.message.startswith(f"{field}: set it")


async def test_a_refused_workload_identity_names_the_account_and_the_role(google: Google, provider: InMemory) -> None:
    call = gke(google, bound=EMAIL, **CLUSTER)
    google.tokens.subjects.clear()
    refused = await failure(provider, call, "a")
    assert refused.reason is ErrorReason.CREDENTIALS_REJECTED
    assert 'service account "team/app"' in refused.message
    assert "roles/iam.workloadIdentityUser" in refused.message
    assert "k8s-token" not in refused.message


# --- federation -------------------------------------------------------------------------------------------------------


def federated(credentials: dict[str, Any], **config: Any) -> Context:
    """Return a call of a store with federation."""
    spec = {"projectID": PROJECT, "auth": {"workloadIdentityFederation": config}}
    return call_context(SecretManagerStore, spec, credentials)


@pytest.mark.parametrize(
    ("email", "annotation", "who"),
    [
        pytest.param("", "", f"federated:{POOL}", id="none"),
        pytest.param("", EMAIL, EMAIL, id="by annotation"),
        pytest.param(
            "b@my-project-1.iam.gserviceaccount.com", EMAIL, "b@my-project-1.iam.gserviceaccount.com", id="by the spec"
        ),
    ],
)
async def test_the_token_of_an_account_is_exchanged_at_the_sts(
    google: Google, provider: InMemory, email: str, annotation: str, who: str
) -> None:
    name = google.store(f"federated-{bool(email)}-{bool(annotation)}", b"value").rpartition("/")[2]
    google.tokens.subjects.add("k8s-token")
    token = account_token("k8s-token", annotations={ACCOUNT_ANNOTATION: annotation} if annotation else {})
    config: dict[str, Any] = {"audience": POOL, "serviceAccountRef": {"name": "app"}}
    config |= {"gcpServiceAccountEmail": email} if email else {}
    call = federated({f"{FEDERATION}/serviceAccountRef": token}, **config)
    assert await read(provider, call, name) == [b"value"]
    exchange = google.tokens.requests("/v1/token")[0].form
    assert exchange["audience"] == POOL
    assert exchange["subject_token"] == "k8s-token"
    assert exchange["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt"
    assert exchange["requested_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert principal(google) == who


async def test_aws_keys_sign_a_request_that_google_can_verify(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"value")
    sent: list[dict[str, Any]] = []

    class Everything(set[str]):
        """Trusts every subject, and notes it."""

        def __contains__(self, text: object) -> bool:
            sent.append(json.loads(unquote(str(text))))
            return True

    google.tokens.subjects = Everything()
    keys = {"aws_access_key_id": b"AKIAEXAMPLE", "aws_secret_access_key": b"CANARY", "aws_session_token": b"session"}
    secret = {key: SecretBytes(value) for key, value in keys.items()}
    place = f"{FEDERATION}/awsSecurityCredentials/awsCredentialsSecretRef"
    config = {"region": "eu-west-1", "awsCredentialsSecretRef": {"name": "aws"}}
    call = federated({place: secret}, audience=POOL, awsSecurityCredentials=config, gcpServiceAccountEmail=EMAIL)
    assert await read(provider, call, name) == [b"value"]
    google.tokens.subjects = set()
    (exchange,) = google.tokens.requests("/v1/token")
    assert exchange.form["subject_token_type"] == "urn:ietf:params:aws:token-type:aws4_request"
    (request,) = sent
    headers = {header["key"].lower(): header["value"] for header in request["headers"]}
    assert request["url"] == "https://sts.eu-west-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
    assert headers["x-goog-cloud-target-resource"] == POOL
    assert "Credential=AKIAEXAMPLE/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "session"
    assert "CANARY" not in json.dumps(request)
    assert principal(google) == EMAIL


def configuration(google: Google, **changes: Any) -> str:
    """Return an external_account configuration."""
    document = {
        "type": "external_account",
        "audience": POOL,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.tokens.url}/v1/token",
        "credential_source": {"url": f"{google.tokens.url}/issue", "format": {"type": "text"}},
    }
    return json.dumps(document | changes)


async def test_a_configuration_says_where_its_token_comes_from(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"value")
    google.tokens.subjects.add("outside-token")

    def issue(request: RecordedRequest) -> StubResponse | None:
        return (200, b"outside-token") if request.path == "/issue" else None

    google.tokens.more = issue
    url = f"{google.tokens.url}/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"
    document = configuration(google, service_account_impersonation_url=url)
    config = {"credConfig": {"name": "gcp", "key": "config"}, "externalTokenEndpoint": f"{google.tokens.url}/issue"}
    assert await read(provider, federated({f"{FEDERATION}/credConfig": document}, **config), name) == [b"value"]
    assert [request.path for request in google.tokens.recorded][:2] == ["/issue", "/v1/token"]
    assert principal(google) == EMAIL


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        pytest.param({"type": "authorized_user"}, "type", id="another type"),
        pytest.param({"credential_source": {"executable": {"command": "id"}}}, "executable", id="a program"),
        pytest.param({"credential_source": {"certificate": {}}}, "certificate", id="a certificate"),
        pytest.param(
            {"credential_source": {"file": "/var/run/secrets/kubernetes.io/serviceaccount/token"}},
            "file",
            id="pod token",
        ),
        pytest.param({"credential_source": {"url": "https://elsewhere.example"}}, "url", id="another URL"),
        pytest.param({"token_url": "https://evil.example/v1/token"}, "token_url", id="another STS"),
        pytest.param({"token_url": "https://sts.googleapis.com.evil.example/v1/token"}, "token_url", id="a lookalike"),
        pytest.param({"token_info_url": "https://evil.example"}, "token_info_url", id="another info URL"),
        pytest.param(
            {
                "service_account_impersonation_url": "https://evil.example/v1/projects/-/serviceAccounts/a@b:generateAccessToken"
            },
            "service_account_impersonation_url",
            id="another impersonation",
        ),
        pytest.param(
            {"credential_source": {"environment_id": "aws1"}}, "credential_source", id="the AWS of the machine"
        ),
        pytest.param(
            {"credential_source": {"environment_id": "aws1", "url": "http://10.0.0.1/keys"}}, "url", id="not AWS"
        ),
    ],
)
async def test_a_configuration_cannot_use_what_belongs_to_the_provider(
    google: Google, provider: InMemory, changes: dict[str, Any], member: str
) -> None:
    config = {"credConfig": {"name": "gcp", "key": "config"}, "externalTokenEndpoint": f"{google.tokens.url}/issue"}
    refused = await failure(
        provider, federated({f"{FEDERATION}/credConfig": configuration(google, **changes)}, **config), "a"
    )
    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert refused.message.startswith(f"{FEDERATION}/credConfig: ")
    assert member in refused.message
    assert not google.tokens.recorded


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"audience": "a"}, id="no form"),
        pytest.param({"serviceAccountRef": {"name": "app"}}, id="no audience"),
        pytest.param(
            {"audience": "a", "serviceAccountRef": {"name": "app"}, "credConfig": {"name": "c", "key": "k"}}, id="two"
        ),
    ],
)
async def test_federation_needs_one_form(provider: InMemory, config: dict[str, Any]) -> None:
    validation = await provider.validate(federated({}, **config))
    assert validation.state is ValidationState.INVALID


# --- the process's own ------------------------------------------------------------------------------------------------


async def test_without_auth_the_machine_gives_a_token_and_the_project(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    google.tokens.facts["project/project-id"] = PROJECT
    assert await read(provider, call_context(SecretManagerStore, {}, cluster_scoped=True), name) == [b"value"]
    assert principal(google) == "machine"
    assert google.secrets.recorded == [("AccessSecretVersion", f"projects/{PROJECT}/secrets/{name}/versions/latest")]


async def test_a_key_file_of_the_process_is_used(
    google: Google,
    provider: InMemory,
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    google.store(name, b"value")
    path = tmp_path_factory.mktemp("key") / "key.json"
    path.write_text(google.key("own@my-project-1.iam.gserviceaccount.com"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    call = call_context(SecretManagerStore, {"projectID": PROJECT}, cluster_scoped=True)
    assert await read(provider, call, name) == [b"value"]
    assert principal(google) == "own@my-project-1.iam.gserviceaccount.com"


@pytest.mark.parametrize("spec", [{}, {"auth": {}}], ids=["without auth", "with an empty auth"])
async def test_a_store_of_a_namespace_does_not_use_the_identity_of_the_provider(
    google: Google, provider: InMemory, spec: dict[str, Any]
) -> None:
    refused = await failure(provider, call_context(SecretManagerStore, {"projectID": PROJECT, **spec}), "a")

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert "--ambient-identity=namespaced" in refused.message
    assert not google.tokens.recorded


async def test_a_generator_of_a_namespace_gives_no_token_of_the_provider(google: Google, provider: InMemory) -> None:
    with pytest.raises(ProviderError, match="--ambient-identity=namespaced"):
        await provider.generate(call_context(GCRAccessTokenGenerator, {"projectID": PROJECT, "auth": {}}))

    assert not google.tokens.recorded


# --- files that a configuration names --------------------------------------------------------------------------------


def naming(google: Google, path: str, **more: Any) -> Context:
    """Return a cluster-scoped store whose configuration reads a token from a file."""
    document = configuration(google, credential_source={"file": path, **more})
    config = {"credConfig": {"name": "gcp", "key": "config"}}
    auth = {"workloadIdentityFederation": config}
    sent = {f"{FEDERATION}/credConfig": document}
    return call_context(SecretManagerStore, {"projectID": PROJECT, "auth": auth}, sent, cluster_scoped=True)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        pytest.param("outside-token", {}, id="text"),
        pytest.param(
            '{"jwt": "outside-token"}', {"format": {"type": "json", "subject_token_field_name": "jwt"}}, id="JSON"
        ),
    ],
)
async def test_a_file_that_the_administrator_lists_gives_the_token(
    google: Google, name: str, tmp_path: Path, *, content: str, form: dict[str, Any]
) -> None:
    google.store(name, b"value")
    google.tokens.subjects.add("outside-token")
    path = tmp_path / "token"
    path.write_text(content)
    policy = ProcessIdentityPolicy.parse("cluster", files=[str(path)])

    async with InMemory(PROVIDER, process_identity=policy) as provider:
        found = await read(provider, naming(google, str(path), **form), name)

    google.tokens.subjects.discard("outside-token")
    assert found == [b"value"]


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/etc/hostname", "/var/run/secrets/kubernetes.io/serviceaccount/token", "relative"]
)
async def test_a_file_that_the_administrator_does_not_list_is_not_read(
    google: Google, provider: InMemory, path: str
) -> None:
    refused = await failure(provider, naming(google, path), "a")

    assert refused.reason is ErrorReason.CONFIG_INVALID
    assert "--identity-file" in refused.message
    assert not google.tokens.recorded


async def test_a_device_is_not_read_even_if_the_administrator_lists_it(google: Google) -> None:
    policy = ProcessIdentityPolicy.parse("cluster", files=["/dev/zero"])

    async with InMemory(PROVIDER, process_identity=policy) as provider:
        refused = await failure(provider, naming(google, "/dev/zero"), "a")

    assert "not a regular file" in refused.message
    assert not google.tokens.recorded


# --- sharing ----------------------------------------------------------------------------------------------------------


async def test_fifty_stores_with_one_identity_share_a_token_and_a_connection(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    for number in range(50):
        call = context(google, namespace=f"team-{number}")
        assert await read(provider, call, name) == [b"value"]
    assert len(google.tokens.requests("/token")) == 1
    assert len(google.secrets.peers) == 1
    assert len(provider.sessions) == 50


async def test_a_token_outlives_the_stores_that_were_idle(google: Google, name: str) -> None:
    google.store(name, b"value")
    clock = SkippingClock()
    async with InMemory(PROVIDER, clock) as provider:
        for _ in range(3):
            assert await read(provider, context(google), name) == [b"value"]
            clock.skip(900.0)
        assert len(google.tokens.requests("/token")) == 1
        clock.skip(900.0)
        assert await read(provider, context(google), name) == [b"value"]

    assert len(google.tokens.requests("/token")) == 2


async def test_another_identity_has_a_token_and_a_connection_of_its_own(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    spec = {"projectID": PROJECT, "auth": AUTH}
    for email in (EMAIL, "other@my-project-1.iam.gserviceaccount.com"):
        assert await read(provider, call_context(SecretManagerStore, spec, {KEY: google.key(email)}), name) == [
            b"value"
        ]
        assert principal(google) == email
    assert len(google.secrets.peers) == 2


async def test_a_revoked_token_is_replaced_at_once(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"value")
    call = context(google)
    assert await read(provider, call, name) == [b"value"]
    google.tokens.issued.clear()
    assert await read(provider, call, name) == [b"value"]
    assert len(google.tokens.requests("/token")) == 2


async def test_validation_obtains_a_token_and_asks_for_no_secret(google: Google, provider: InMemory) -> None:
    validation = await provider.validate(context(google))
    assert validation.state is ValidationState.READY
    assert len(google.tokens.requests("/token")) == 1
    assert not google.secrets.calls
