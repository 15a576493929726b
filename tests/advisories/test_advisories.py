"""Attacks of published advisories on our product: each test is named by the advisory, and none of them succeeds."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib.util
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from eso_api.externalsecret import BOOTSTRAP_TOKEN, EXTERNAL_SECRET, SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN
from eso_api.generators.webhook import WEBHOOK
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_render.functions import functions
from eso_sdk.addresses import AddressPolicy, ForbiddenAddressError
from eso_sdk.http import HttpClient, HttpRequest, HttpSettings
from eso_sdk.processidentity import ProcessIdentity, ProcessIdentityPolicy
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.operator.operators import Bench
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ObjectRef
from gotmpl.errors import TemplateError
from gotmpl.template import Engine
from kubebase.clock import SystemClock
from kubebase.meta import Condition, JsonObject, Resource
from kuberun.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from kuberun.testing.rawapi import RawApi, raw_api

ROOT = Path(__file__).resolve().parents[2]
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
STORES, WEBHOOKS = SECRET_STORE.resource(), WEBHOOK.resource()
TENANT, VICTIM = "tenant", "victim"
CANARY = "CANARYhunter2x7q"
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


# --- the product ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    flags = ["--", "--loglevel=debug", "--unsafe-allow-generic-targets"]
    with up_running(tmp_path_factory.mktemp("up"), *flags) as running:
        yield running


@pytest.fixture
async def bench(up: UpProcess) -> AsyncIterator[Bench]:
    """The namespace of the attacker; that of the victim has a Secret and a ConfigMap."""
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        for name in (TENANT, VICTIM):
            await api.post(NAMESPACES.path(), {"metadata": {"name": name}})
        theirs = Bench(api, up.kubeconfig, VICTIM, 0)
        if await theirs.find(SECRETS, "theirs") is None:
            ca = up.ca_file.read_text()
            await put(
                api,
                SECRETS,
                VICTIM,
                "theirs",
                data={"token": encoded(CANARY), "ca.crt": encoded(ca)},
                labels={"app": "shop"},
            )
            await put(api, SECRETS, VICTIM, "labelled", data={"token": encoded(CANARY)}, labels={"app": "theirs"})
            await put(api, CONFIG_MAPS, VICTIM, "theirs", data={"ca.crt": ca})
        yield Bench(api, up.kubeconfig, TENANT, 0)


async def put(
    api: RawApi,
    resource: Resource,
    namespace: str,
    name: str,
    *,
    labels: Any = None,
    annotations: Any = None,
    **parts: Any,
) -> None:
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    answer = await api.post(resource.path(namespace), _typed(resource, metadata) | parts)
    assert answer.status == 201, answer.body


def _typed(resource: Resource, metadata: JsonObject) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def fake_store(bench: Bench, name: str) -> JsonObject:
    data = [{"key": "password", "value": CANARY}]
    await put(bench.api, STORES, TENANT, name, spec={"provider": {"fake": {"data": data}}})
    return {"name": name, "kind": "SecretStore"}


def reading(ref: JsonObject, **target: Any) -> JsonObject:
    data = [{"secretKey": "password", "remoteRef": {"key": "password"}}]
    return {"refreshInterval": "1h", "secretStoreRef": ref, "target": target, "data": data}


async def refused(bench: Bench, resource: Resource, name: str) -> str:
    """Return the message of the condition once the object is not ready."""
    return str((await bench.ready(resource, name, lambda ready: ready.status == "False"))["status"])


def synced(condition: Condition) -> bool:
    return condition.status == "True"


async def kubernetes_store(up: UpProcess, bench: Bench, name: str) -> JsonObject:
    """A store that reads and writes Secrets of the tenant's namespace with the token of an account."""
    await put(bench.api, SERVICE_ACCOUNTS, TENANT, name)
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": verbs},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectrulesreviews"], "verbs": ["create"]},
    ]
    await put(bench.api, ROLES, TENANT, name, rules=rules)
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": TENANT}]
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": name}
    await put(bench.api, BINDINGS, TENANT, name, subjects=subjects, roleRef=role)
    provider = {
        "remoteNamespace": TENANT,
        "server": {"url": up.url, "caBundle": base64.b64encode(up.ca_file.read_bytes()).decode()},
        "auth": {"serviceAccount": {"name": name}},
    }
    await put(bench.api, STORES, TENANT, name, spec={"provider": {"kubernetes": provider}})
    await bench.ready(STORES, name, synced)
    return {"name": name, "kind": "SecretStore"}


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects() -> list[JsonObject]:
    """The objects of the umbrella chart with a provider, as the tests of the charts render them."""
    spec = importlib.util.spec_from_file_location("advisories_charts", ROOT / "tests" / "deploy" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    charts = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(charts)
    values = {"image": {"registry": "registry.example.com/eso"}, "providers": {"vault": {"enabled": True}}}
    found: list[JsonObject] = charts.rendered(charts.UMBRELLA, **values, dashboard={"enabled": True})
    return found


def test_cve_2024_45041_only_the_operator_reads_secrets_and_no_account_edits_webhooks(
    objects: list[JsonObject],
) -> None:
    rules = {one["metadata"]["name"]: one.get("rules") or [] for one in objects if one["kind"].endswith("Role")}
    granted = {
        (subject["name"], resource, verb)
        for one in objects
        if one["kind"].endswith("RoleBinding")
        for subject in one["subjects"]
        for rule in rules[one["roleRef"]["name"]]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}

    assert {"external-secrets", "provider-vault"} <= accounts
    assert {who for who, what, _ in granted if what in ("secrets", "*")} == {"external-secrets"}
    assert [one for one in granted if "webhookconfigurations" in one[1] or one[2] == "*"] == []
    assert [one for one in granted if one[0].startswith("provider-") and one[1] != "tokenreviews"] == []


# --- templates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        pytest.param('getSecretKey "victim" "theirs" "token"', id="CVE-2026-22822"),
        pytest.param('lookup "v1" "Secret" "victim" "theirs"', id="CVE-2026-22822 in Helm's spelling"),
        pytest.param("getHostByName .password", id="CVE-2026-34984"),
        pytest.param('env "HOME"', id="the environment"),
        pytest.param('expandenv "$HOME"', id="the environment in a text"),
        pytest.param('readFile "/etc/passwd"', id="a file"),
    ],
)
def test_a_template_reaches_nothing_outside(call: str) -> None:
    asked: list[str] = []
    sys.addaudithook(lambda event, _: asked.append(event) if event.startswith("socket.") else None)

    engine = Engine(functions(lambda: 0))
    with pytest.raises(TemplateError) as failed:
        engine.render(f"{{{{ {call} }}}}", {"password": CANARY})

    assert "not defined" in str(failed.value)
    assert CANARY not in str(failed.value)
    assert asked == []


def test_cve_2026_22822_the_list_of_functions_has_none_that_reads_a_cluster_a_host_a_file_or_the_environment() -> None:
    names = set(functions(lambda: 0))

    assert "upper" in names
    assert [
        name for name in names if re.search("secretkey|lookup|host|dns|env|file|http|exec|cluster", name.lower())
    ] == []


LETTERS = "".join(f'{{{{ $_ := "{letter}" }}}}' for letter in sorted(set(CANARY)))


@pytest.mark.parametrize(
    ("number", "template", "shown"),
    [
        pytest.param(0, '{{ fail (printf "bad password %s" .password) }}', "bad password <redacted>", id="printf"),
        pytest.param(1, '{{ $m := print "bad: " .password }}{{ fail $m }}', "bad: <redacted>", id="a variable"),
        pytest.param(2, '{{ fail (join " x " (splitList "" .password)) }}', "<redacted>", id="letters among words"),
        pytest.param(3, LETTERS + '{{ fail (join " " (splitList "" .password)) }}', "<redacted>", id="literal letters"),
        pytest.param(4, LETTERS + '{{ eq (splitList "" .password) (list) }}', "error calling eq", id="a list"),
        pytest.param(5, '{{ fail "set the user first" }}', "set the user first", id="words of the template"),
        pytest.param(6, "{{ .password | mustFromJson }}", "mustFromJson", id="JSON"),
        pytest.param(7, '{{ regexFind (print "[" .password) "x" }}', "regexFind", id="a pattern"),
        pytest.param(8, '{{ mustToDate "2006" .password }}', "mustToDate", id="a date"),
    ],
)
async def test_fail_and_other_errors_show_words_of_the_template_and_no_value(
    up: UpProcess, bench: Bench, number: int, template: str, shown: str
) -> None:
    name = f"fail-{number}"
    ref = await fake_store(bench, name)

    await put(bench.api, EXTERNAL_SECRETS, TENANT, name, spec=reading(ref, template={"data": {"out": template}}))

    status = await refused(bench, EXTERNAL_SECRETS, name)
    assert shown in status
    events = json.dumps((await bench.api.get(f"/api/v1/namespaces/{TENANT}/events")).body)
    for text in (status, events, up.output):
        letters = re.sub(r"\W", "", text)
        assert CANARY not in letters
        assert CANARY not in letters.replace("x", "")
        assert "x".join(CANARY) not in letters


# --- other namespaces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["ConfigMap", "Secret"])
async def test_cve_2026_42875_a_namespaced_store_reads_no_authority_of_another_namespace(
    up: UpProcess, bench: Bench, type_: str
) -> None:
    name = f"ca-{type_.lower()}"
    await put(bench.api, SERVICE_ACCOUNTS, TENANT, name)
    authority = {"type": type_, "name": "theirs", "key": "ca.crt", "namespace": VICTIM}
    provider = {
        "remoteNamespace": TENANT,
        "server": {"url": up.url, "caProvider": authority},
        "auth": {"serviceAccount": {"name": name}},
    }

    await put(bench.api, STORES, TENANT, name, spec={"provider": {"kubernetes": provider}})

    said = await refused(bench, STORES, name)
    assert "CrossNamespaceDenied" in said
    assert f"names namespace {VICTIM}; credentials may only come from {TENANT}" in said


async def test_ghsa_fcxq_v2r3_cc8h_a_label_selector_finds_secrets_of_its_own_namespace_only(
    up: UpProcess, bench: Bench
) -> None:
    ref = await kubernetes_store(up, bench, "by-label")
    await put(bench.api, SECRETS, TENANT, "ours", data={"token": encoded("ours")}, labels={"app": "shop"})
    match: JsonObject = {"secretKey": "token", "remoteRef": {"remoteKey": "pushed-by-label", "property": "token"}}
    spec: JsonObject = {
        "refreshInterval": "1h",
        "secretStoreRefs": [ref],
        "selector": {"secret": {"selector": {"matchLabels": {"app": "shop"}}}},
        "data": [{"match": match}],
    }

    await put(bench.api, PUSH_SECRETS, TENANT, "by-label", spec=spec)

    await bench.ready(PUSH_SECRETS, "by-label", synced)
    pushed = await bench.find(SECRETS, "pushed-by-label")
    assert pushed is not None
    assert base64.b64decode(pushed["data"]["token"]) == b"ours"

    spec["selector"]["secret"]["selector"]["matchLabels"] = {"app": "theirs"}
    match["remoteRef"]["remoteKey"] = "pushed-of-theirs"
    await put(bench.api, PUSH_SECRETS, TENANT, "of-theirs", spec=spec)
    await bench.ready(PUSH_SECRETS, "of-theirs", lambda ready: "no Secret matches" in ready.message)
    assert await bench.find(SECRETS, "pushed-of-theirs") is None


# --- tokens of the cluster --------------------------------------------------------------------------------------------

FOR_ADMIN = {SERVICE_ACCOUNT_NAME: "default"}
TYPES = [pytest.param(SERVICE_ACCOUNT_TOKEN, id="account"), pytest.param(BOOTSTRAP_TOKEN, id="bootstrap")]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("manifest", [None, {"apiVersion": "v1", "kind": "Secret"}], ids=["Secret", "manifest"])
async def test_cve_2026_42876_a_template_makes_no_token(bench: Bench, type_: str, manifest: JsonObject | None) -> None:
    target = {
        "template": {"type": type_, "metadata": {"annotations": FOR_ADMIN}},
        **({"manifest": manifest} if manifest else {}),
    }

    forged = _typed(EXTERNAL_SECRETS, {"name": "forged"})
    body = {**forged, "spec": reading({"name": "any", "kind": "SecretStore"}, **target)}
    answer = await bench.api.post(EXTERNAL_SECRETS.path(TENANT), body)

    assert answer.status == 422
    assert type_ in answer.body["message"]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("manifest", [None, {"apiVersion": "v1", "kind": "Secret"}], ids=["Secret", "manifest"])
async def test_cve_2026_42876_an_existing_token_is_no_target(
    bench: Bench, type_: str, manifest: JsonObject | None
) -> None:
    name = f"merge-{type_.partition('.')[0]}-{'manifest' if manifest else 'secret'}"
    ref = await fake_store(bench, name)
    await put(bench.api, SECRETS, TENANT, name, type=type_, annotations=FOR_ADMIN, data={"a": encoded("b")})
    before = await bench.find(SECRETS, name)
    target = {"name": name, "creationPolicy": "Merge", **({"manifest": manifest} if manifest else {})}

    await put(bench.api, EXTERNAL_SECRETS, TENANT, name, spec=reading(ref, **target))

    assert "token" in await refused(bench, EXTERNAL_SECRETS, name)
    assert await bench.find(SECRETS, name) == before


@pytest.mark.parametrize("type_", TYPES)
async def test_cve_2026_42876_a_push_makes_no_token(up: UpProcess, bench: Bench, type_: str) -> None:
    name = f"push-{type_.partition('.')[0]}"
    ref = await kubernetes_store(up, bench, name)
    await put(bench.api, SECRETS, TENANT, f"{name}-source", data={"a": encoded("b")})
    spec = {
        "refreshInterval": "1h",
        "secretStoreRefs": [ref],
        "selector": {"secret": {"name": f"{name}-source"}},
        "template": {"type": type_, "metadata": {"annotations": FOR_ADMIN}},
        "data": [{"match": {"remoteRef": {"remoteKey": f"{name}-made"}}}],
    }

    await put(bench.api, PUSH_SECRETS, TENANT, name, spec=spec)

    assert type_ in await refused(bench, PUSH_SECRETS, name)
    assert await bench.find(SECRETS, f"{name}-made") is None


# --- servers that a tenant names --------------------------------------------------------------------------------------


async def test_cve_2026_26287_a_secret_without_the_label_is_never_sent(bench: Bench) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(str(request.headers) + await request.text())
        return web.json_response({"a": "b"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await put(bench.api, SECRETS, TENANT, "unlabelled", data={"token": encoded(CANARY)})
        spec = {
            "url": f"http://127.0.0.1:{runner.addresses[0][1]}/",
            "headers": {"Authorization": "{{ .auth.token }}"},
            "result": {"jsonPath": "$"},
            "secrets": [{"name": "auth", "secretRef": {"name": "unlabelled"}}],
        }
        await put(bench.api, WEBHOOKS, TENANT, "unlabelled", spec=spec)
        source = {"sourceRef": {"generatorRef": {"kind": "Webhook", "name": "unlabelled"}}}

        await put(bench.api, EXTERNAL_SECRETS, TENANT, "unlabelled", spec={"dataFrom": [source]})

        assert "external-secrets.io/type: webhook" in await refused(bench, EXTERNAL_SECRETS, "unlabelled")
        assert seen == []
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://2852039166/", "http://[::ffff:a9fe:a9fe]/"])
def test_ghsa_r2v3_8gwf_7ghm_metadata_services_are_not_dialled(url: str) -> None:
    host = URL(url).host or ""
    resolved = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)

    for *_, address in resolved:
        with pytest.raises(ForbiddenAddressError):
            AddressPolicy.parse(["loopback"]).check(str(address[0]))


def test_ghsa_r2v3_8gwf_7ghm_no_host_of_a_tenant_receives_the_identity_of_the_process() -> None:
    store = ObjectRef("external-secrets.io/v1", "SecretStore", TENANT, "store")

    for policy in (ProcessIdentityPolicy.parse("cluster"), ProcessIdentityPolicy.parse("namespaced")):
        with pytest.raises(ProviderError):
            ProcessIdentity(policy, store).prove("token", URL("https://evil.test"), field="/server", vendor=())


SPELLINGS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 0 127.9.9.9 localhost
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [2002:7f00:1::]
169.254.169.254 2852039166 0xa9fea9fe 169.254.43518 0251.0376.0251.0376 [::ffff:169.254.169.254]
[64:ff9b::a9fe:a9fe] [2002:a9fe:a9fe::] [fd00:ec2::254] 100.100.100.200 168.63.129.16
"""


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient(HttpSettings(subject="the endpoint"), policy=AddressPolicy(), clock=SystemClock())
    yield client
    await client.close()


@pytest.mark.parametrize("host", SPELLINGS.split())
async def test_a_spelling_of_a_forbidden_address_is_not_dialled(http: HttpClient, host: str) -> None:
    with pytest.raises(ProviderError) as refusal:
        await http.send(HttpRequest("GET", URL(f"http://{host}/")), seconds=5)

    assert refusal.value.reason is ErrorReason.CONFIG_INVALID


HEAD = b"HTTP/1.1 200 OK\r\n"
BOMBS = [
    pytest.param(
        HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b"0" * (64 << 20)), id="gzip"
    ),
    pytest.param(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"0" * (1 << 20) + b"\r\n") * 6, id="chunks"
    ),
    pytest.param(HEAD + b"X-Large: " + b"0" * (1 << 20) + b"\r\n\r\n", id="a large header"),
    pytest.param(HEAD + b"".join(b"X-%d: 0\r\n" % number for number in range(100_000)) + b"\r\n", id="many headers"),
]


@pytest.mark.parametrize("response", BOMBS)
async def test_a_bomb_is_refused(response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = HttpClient(
        HttpSettings(subject="the endpoint"), policy=AddressPolicy.parse(["loopback"]), clock=SystemClock()
    )
    try:
        with pytest.raises(ProviderError) as refusal:
            await client.send(
                HttpRequest("GET", URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")), seconds=30
            )
    finally:
        await client.close()
        server.close()

    assert "000000" not in refusal.value.message


# --- logs -------------------------------------------------------------------------------------------------------------


async def test_cve_2023_2878_and_cve_2024_3744_no_token_of_an_account_is_logged(up: UpProcess, bench: Bench) -> None:
    ref = await kubernetes_store(up, bench, "logged")
    await put(bench.api, SECRETS, TENANT, "password", data={"value": encoded(CANARY)})
    data = [{"secretKey": "value", "remoteRef": {"key": "password", "property": "value"}}]

    await put(bench.api, EXTERNAL_SECRETS, TENANT, "logged", spec={"secretStoreRef": ref, "data": data})

    await bench.ready(EXTERNAL_SECRETS, "logged", synced)
    assert '"level":"debug"' in up.output.replace(" ", "").lower() or "debug" in up.output.lower()
    assert re.search(r"eyJ[\w-]{10,}\.", up.output) is None
    assert CANARY not in up.output
    assert up.token not in up.output


# --- the table of the README ------------------------------------------------------------------------------------------


def test_every_attack_of_the_readme_has_its_test() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| `([^`]+)` \| `(test_\w+)` \|$", (ROOT / "tests/advisories/README.md").read_text(), re.MULTILINE
    )

    missing = [row for row in rows if f"def {row[2]}(" not in (ROOT / row[1]).read_text()]

    assert len(rows) > 15
    assert missing == []
