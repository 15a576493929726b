"""Every provider keeps the contract: as its own process, over mutual TLS, in every profile that applies to it (R105).

Cases that do not apply to a provider are listed here, so that a case that silently stops applying is noticed.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from eso_provider_aws.conformance import fixture as aws_fixture
from eso_provider_aws.testing.front import environment_of, moto_in_thread
from eso_provider_aws.testing.sessions import KEYS, REGION, admin
from eso_provider_azure.conformance import Principal
from eso_provider_azure.conformance import fixture as azure_fixture
from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT, AzureServer
from eso_provider_gcp.conformance import fixture as gcp_fixture
from eso_provider_gcp.testing.sessions import PROJECT, Google
from eso_provider_gcp.testing.tokens import SUBSCRIPTION
from eso_provider_vault.conformance import fixture as vault_fixture
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_webhook.conformance import fixture_at
from eso_testkit.cli.conformance import (
    BINARY,
    EXISTS,
    FIND,
    FIXTURE_VALUES,
    IF_ABSENT,
    OWNERSHIP,
    REFERENCES,
    STATE,
    UNOFFERED_IF_ABSENT,
    UNOFFERED_OPERATIONS,
    VERSIONS,
    Candidate,
)
from eso_testkit.cli.providerprocess import serve_command
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi

ROOT = Path(__file__).resolve().parents[2]
ESO = Path(sys.executable).parent / "eso"


def example_command(folder: Path) -> tuple[str, ...]:
    notes = folder / "notes"
    notes.mkdir()
    (notes / "password").write_bytes(b"open sesame")
    return (sys.executable, str(ROOT / "packages/eso-sdk/examples/notes.py"))


def example_fixture(folder: Path) -> Mapping[str, Any]:
    spec = {"folder": str(folder / "notes"), "passwordRef": {"name": "notes", "key": "password"}}
    credentials = {"/passwordRef": "open sesame"}
    return {"kinds": [{"kind": "Notes", "spec": spec, "credentials": credentials, "invalid": [{}]}]}


def scaffolded_command(folder: Path) -> tuple[str, ...]:
    made = folder / "eso-provider-brand-new"
    subprocess.run([ESO, "provider", "new", "brand-new", "--folder", made], check=True, capture_output=True)
    program = f"import sys; sys.path.insert(0, {str(made / 'src')!r})\n"
    return (sys.executable, "-c", program + "from eso_provider_brand_new.provider import main; main()")


def scaffolded_fixture(folder: Path) -> Mapping[str, Any]:
    del folder
    spec = {"url": "https://brand.new", "tokenSecretRef": {"name": "brand-new", "key": "token"}}
    credentials = {"/tokenSecretRef": "token"}
    return {"kinds": [{"kind": "BrandNew", "spec": spec, "credentials": credentials, "invalid": [{}]}]}


class SecretManager(BaseHTTPRequestHandler):
    """Values by path, for the webhook provider."""

    values: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        self._answer(self.values.get(self.path))

    def do_DELETE(self) -> None:
        self._answer(self.values.pop(self.path, None))

    def do_POST(self) -> None:
        self.values[self.path] = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self._answer(b"")

    def _answer(self, body: bytes | None) -> None:
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def webhook_backend() -> Iterator[Mapping[str, Any]]:
    SecretManager.values = {
        "/secrets/greeting": b"hello",
        "/secrets/dir%2Fgreeting": b"hello again",
        "/secrets/login": b'{"user":"anna","realm":"test"}',
        "/new": b'{"password":"generated"}',
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), SecretManager) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield fixture_at(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


@contextmanager
def vault_backend() -> Iterator[Mapping[str, Any]]:
    """A real OpenBao with a few keys."""
    with tempfile.TemporaryDirectory() as folder, OpenBao.started(Path(folder)) as bao:
        bao.enable("kv")
        bao.put("kv", "login", {"user": "first"})
        bao.put("kv", "login", {"user": "anna", "realm": "test"})
        known: dict[str, Any] = {
            "known": [
                {"key": "login", "value": "anna", "property": "user"},
                {"key": "login", "value": "first", "property": "user", "version": "1"},
            ],
            "maps": [{"key": "login", "value": {"user": "anna", "realm": "test"}}],
            "find": {"name": "^login$", "keys": ["login"]},
        }
        yield vault_fixture(bao.url, bao.root_token, "kv", **known)


AWS_VERSIONS = {"SecretsManager": "AWSPREVIOUS", "ParameterStore": "1"}


def versioned_values(before: str) -> dict[str, Any]:
    """Return the values of a service; `before` is its name for the previous version."""
    return {
        "known": [
            {"key": "login", "value": "anna", "property": "user"},
            {"key": "login", "value": "first", "property": "user", "version": before},
        ],
        "maps": [{"key": "login", "value": {"user": "anna", "realm": "test"}}],
        "find": {"name": "^login$", "keys": ["login"]},
    }


@contextmanager
def aws_backend() -> Iterator[Mapping[str, Any]]:
    """All services of moto, with a secret of two versions; the provider's process inherits where they are."""
    with (
        tempfile.TemporaryDirectory() as folder,
        moto_in_thread(Path(folder)) as front,
        pytest.MonkeyPatch.context() as patched,
    ):
        quick = {"ESO_PROVIDER_AWS_LOOK_SECONDS": "1"}
        for name, value in (environment_of(front.url) | quick).items():
            patched.setenv(name, value)
        first, second = '{"user":"first"}', '{"user":"anna","realm":"test"}'
        secrets, parameters = admin("secretsmanager", front.behind), admin("ssm", front.behind)
        secrets.create_secret(Name="login", SecretString=first)
        secrets.put_secret_value(SecretId="login", SecretString=second)
        for value in (first, second):
            parameters.put_parameter(Name="login", Value=value, Type="SecureString", Overwrite=True)
        known = {service: versioned_values(version) for service, version in AWS_VERSIONS.items()}
        yield aws_fixture(REGION, KEYS, **known)


@contextmanager
def azure_backend() -> Iterator[Mapping[str, Any]]:
    """A vault and a registry of the provider's own server; the provider's process inherits where they are."""
    with (
        tempfile.TemporaryDirectory() as folder,
        AzureServer.started(Path(folder)) as azure,
        pytest.MonkeyPatch.context() as patched,
    ):
        for name, value in (azure.environment | {"ESO_PROVIDER_AZURE_LOOK_SECONDS": "1"}).items():
            patched.setenv(name, value)
        contents = azure.vault("kv-one").contents
        first = contents.put("login", '{"user":"first"}')
        contents.put("login", '{"user":"anna","realm":"test"}')
        registry = azure.registry("images").host
        principal = Principal(TENANT, CLIENT, SECRET)
        yield azure_fixture("https://kv-one.vault.azure.net", principal, versioned_values(first), registry)


@contextmanager
def gcp_backend() -> Iterator[Mapping[str, Any]]:
    """Google's protocols, with a secret of two versions; the provider's process inherits where they are."""
    with Google.started() as google, pytest.MonkeyPatch.context() as patched:
        for name, value in google.environment.items():
            patched.setenv(name, value)
        google.store("login", b'{"user":"first"}', b'{"user":"anna","realm":"test"}')
        yield gcp_fixture(PROJECT, google.key(), SUBSCRIPTION, **versioned_values("1"))


FEEDS = ("read", "write", "subscribe", "tls")
EVERYTHING = ("read", "write", "subscribe", "generator", "tls")

KUBERNETES = Candidate(
    lambda _: serve_command("kubernetes"),
    without={"read": frozenset({VERSIONS}), "write": frozenset({UNOFFERED_IF_ABSENT, *OWNERSHIP})},
    flags=("--allow-address", "loopback"),
    profiles=FEEDS,
)
CANDIDATES = {
    "fake": Candidate(
        lambda _: serve_command("fake"),
        without={"read": frozenset({UNOFFERED_OPERATIONS, REFERENCES}), "write": frozenset({UNOFFERED_IF_ABSENT})},
        profiles=FEEDS,
    ),
    "generators": Candidate(
        lambda _: serve_command("generators"),
        without={"generator": frozenset(STATE)},
        profiles=("generator", "tls"),
    ),
    "webhook": Candidate(
        lambda _: serve_command("webhook"),
        without={
            "read": frozenset({VERSIONS, *FIND}),
            "write": frozenset({*IF_ABSENT, *OWNERSHIP}),
            "generator": frozenset(STATE),
        },
        backend=webhook_backend,
        flags=("--allow-address", "loopback"),
        profiles=("read", "write", "generator", "tls"),
    ),
    "vault": Candidate(
        lambda _: serve_command("vault"),
        without={
            "read": frozenset({UNOFFERED_OPERATIONS}),
            "write": frozenset({UNOFFERED_IF_ABSENT, BINARY}),
        },
        backend=vault_backend,
        flags=("--allow-address", "loopback"),
    ),
    "aws": Candidate(
        lambda _: serve_command("aws"),
        without={
            "read": frozenset({UNOFFERED_OPERATIONS}),
            "write": frozenset({UNOFFERED_IF_ABSENT, BINARY}),
            "generator": frozenset(STATE),
        },
        backend=aws_backend,
        profiles=EVERYTHING,
    ),
    "azure": Candidate(
        lambda _: serve_command("azure"),
        without={
            "read": frozenset({UNOFFERED_OPERATIONS}),
            "write": frozenset({*IF_ABSENT, BINARY}),
            "generator": frozenset(STATE),
        },
        backend=azure_backend,
        flags=("--allow-address", "loopback"),
        profiles=EVERYTHING,
    ),
    "gcp": Candidate(
        lambda _: serve_command("gcp"),
        without={
            "read": frozenset({UNOFFERED_OPERATIONS}),
            "write": frozenset({UNOFFERED_IF_ABSENT}),
            "generator": frozenset(STATE),
        },
        backend=gcp_backend,
        profiles=EVERYTHING,
    ),
    "example": Candidate(
        example_command,
        example_fixture,
        {"read": frozenset({FIXTURE_VALUES, EXISTS}), "write": frozenset(IF_ABSENT)},
    ),
    "scaffold": Candidate(
        scaffolded_command,
        scaffolded_fixture,
        {"read": frozenset({FIXTURE_VALUES}), "write": frozenset(IF_ABSENT)},
    ),
}


@pytest.mark.timeout(900)  # all profiles of a provider, one after the other
@pytest.mark.parametrize("name", CANDIDATES)
async def test_a_provider_process_keeps_the_contract(name: str, tmp_path: Path) -> None:
    candidate = CANDIDATES[name]

    with candidate.backend() as fixture:
        found = await candidate.judged(name, tmp_path, fixture)

    assert found == candidate.expected


@pytest.mark.live
async def test_the_kubernetes_provider_keeps_the_contract(
    api_server: ApiServer, api: RawApi, namespace: str, tmp_path: Path
) -> None:
    fixture = await kubernetes_fixture(api_server, api, namespace)

    found = await KUBERNETES.judged("kubernetes", tmp_path, fixture)

    assert found == KUBERNETES.expected


async def kubernetes_fixture(server: ApiServer, api: RawApi, namespace: str) -> Mapping[str, Any]:
    """A namespace with Secrets and ConfigMaps, for both kinds of store."""
    texts = {"greeting": "hello from afar", "login": '{"user":"anna","realm":"test"}'}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    place = f"/api/v1/namespaces/{namespace}"
    for name in ("known-one", "known-two"):
        assert (await api.post(f"{place}/secrets", {"metadata": {"name": name}, "data": data})).status == 201
    # Stores of `crd` are for objects of their own namespace, and the suite's stores are in `conformance`.
    await api.post("/api/v1/namespaces", {"metadata": {"name": "conformance"}})
    home = "/api/v1/namespaces/conformance/configmaps"
    for name in ("known-one", "known-two"):
        assert (await api.post(home, {"metadata": {"name": name}, "data": texts})).status in (201, 409)
    authority = base64.b64encode(server.ca_file.read_bytes()).decode()
    connection = {
        "server": {"url": server.url, "caBundle": authority},
        "auth": {"token": {"bearerToken": {"name": "credentials", "key": "token"}}},
    }
    shared: dict[str, Any] = {
        "credentials": {"/auth/token/bearerToken": server.token},
        "absent": "conformance-no-such-key",
        "find": {"name": "^known-", "keys": ["known-one", "known-two"]},
        "invalid": [{}, {"server": connection["server"]}],
    }
    secrets = {
        **shared,
        "spec": {**connection, "remoteNamespace": namespace},
        "known": [
            {"key": "known-one", "property": "greeting", "value": "hello from afar"},
            {"key": "known-two", "property": "login.user", "value": "anna"},
        ],
        "maps": [{"key": "known-one", "value": texts}],
        "writable": "conformance-",
        "ownership": False,
        "property": "value",
    }
    objects = {
        **shared,
        "spec": {**connection, "resource": {"version": "v1", "kind": "ConfigMap"}},
        "known": [{"key": "known-one", "property": "data.greeting", "value": "hello from afar"}],
    }
    kinds = {"Kubernetes": secrets, "ClusterKubernetes": secrets}
    kinds |= {"CustomResource": objects, "ClusterCustomResource": objects}
    return {"kinds": [{"kind": name, **each} for name, each in kinds.items()]}
