"""No planted value comes out anywhere but where it belongs: `eso up` and its providers, in failures and crashes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import stat
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from grpc import aio

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.generator import GENERATOR
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_conformance import Identity, Target
from eso_conformance.fixture import KindFixture
from eso_conformance.subject import CALL_SECONDS, Subject, channel_to, item, shake_hands
from eso_provider_aws.testing.front import RecordedRequest, StubResponse, environment_of, moto_in_thread, refused
from eso_provider_aws.testing.sessions import admin
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.operator.operators import Bench
from eso_wire._generated import provider_pb2 as pb
from kubebase.meta import Condition, JsonObject, Resource
from kubebase.testing.servers import free_ports
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS
from kuberun.testing.rawapi import RawApi, raw_api

NAMESPACE = "team"
STORES, STORES_V2, GENERATORS = SECRET_STORE.resource(), SECRET_STORE_V2.resource(), GENERATOR.resource()
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
OWNED = "provider.secretstore.external-secrets.io/v2alpha1"
OWNED_GENERATORS = "provider.generator.external-secrets.io/v2alpha1"
FAILURES = Path(__file__).with_name("failures.yaml")
WHERE_PEOPLE_WRITE_VALUES = {"SecretStore", "Fake"}
"""Their specs hold values. Everything else of them must not."""


class Canaries:
    """Values that can be recognised, one for each place where they are planted."""

    def __init__(self) -> None:
        self._planted: dict[str, str] = {}

    def plant(self, where: str) -> str:
        return self._planted.setdefault(where, f"CANARY{uuid.uuid4().hex}")

    def found_in(self, text: str) -> list[str]:
        """The places of those that are in a text: as they are, in hexadecimal, or in base64 at any offset."""
        return [where for where, value in self._planted.items() if any(form in text for form in _forms(value))]


def _forms(value: str) -> Iterator[str]:
    raw = value.encode()
    yield value
    yield raw.hex()
    yield from (base64.b64encode(b" " * shift + raw)[4:-4].decode() for shift in range(3))


@dataclass(slots=True)
class Site:
    """The product with all values planted, and the outputs that its clients received."""

    up: UpProcess
    canaries: Canaries
    provider_port: int
    metrics_port: int
    errors: list[str] = field(default_factory=list)


def documents(canaries: Canaries) -> list[JsonObject]:
    plant = canaries.plant
    configured = [
        {"key": "login", "value": json.dumps({"user": "anna", "password": plant("a property of a value")})},
        {"key": "plain", "value": plant("a value of a v1 store")},
    ]
    broken = {"data": [{"key": "", "value": plant("a value of a store that is refused")}], "validationResult": 2}
    values = {"data": [{"key": "plain", "value": plant("a value of a provider's own object")}]}
    malformed = {"data": [{"key": "plain", "value": {"nested": plant("a value of a wrong type")}}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "caller", "namespace": NAMESPACE}},
        secret("pushed", value=plant("a value that is pushed"), refused=plant("a value whose push is refused")),
        secret("mfa", good="GEZDGNBVGY3TQOJQ", bad=f"{plant('a credential that is refused')}=1"),
        document(STORES, "v1", {"provider": {"fake": {"data": configured}}}),
        document(STORES, "refused", {"provider": {"fake": broken}}),
        document(STORES, "malformed", {"provider": {"fake": malformed}}),
        owned("Fake", "values", values),
        document(
            STORES_V2,
            "v2",
            {
                "providerConfig": {
                    "providerRef": {"kind": "Fake", "name": "values"},
                    "auth": {"serviceAccountRef": {"name": "caller"}},
                }
            },
        ),
        owned("MFA", "bad", {"secret": {"name": "mfa", "key": "bad"}}, OWNED_GENERATORS),
        document(GENERATORS, "bad", {"providerConfig": {"providerRef": {"kind": "MFA", "name": "bad"}}}),
        reading("good", "v1", {"plain": "plain", "password": "login"}),
        reading("absent", "v1", {"plain": "plain", "absent": "no-such-key"}),
        reading("internal", "v1", {"plain": "plain", "fault": "fault:error:INTERNAL"}),
        reading("throttled", "v1", {"plain": "plain", "fault": "fault:error:RATE_LIMITED:2"}),
        reading("template", "v1", {"plain": "plain"}, template={"data": {"out": "{{ .plain | fail }}"}}),
        pushing("pushed", {"value": "from-push"}),
        pushing("refused", {"refused": "plain"}),
    ]


def failures(canaries: Canaries) -> list[JsonObject]:
    """The objects of the file beside this one, with values planted in them."""
    planted = re.sub("«([^»]+)»", lambda place: canaries.plant(place[1]), FAILURES.read_text())
    return list(yaml.safe_load_all(planted))


def document(resource: Resource, name: str, spec: Any) -> JsonObject:
    return owned(resource.kind, name, spec, resource.api_version)


def owned(kind: str, name: str, spec: Any, api_version: str = OWNED) -> JsonObject:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def secret(name: str, **data: str) -> JsonObject:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def reading(name: str, store: str, keys: Mapping[str, str], **target: Any) -> JsonObject:
    data = [{"secretKey": one, "remoteRef": {"key": key}} for one, key in keys.items()]
    ref = {"name": store, "kind": "SecretStore"}
    return document(
        EXTERNAL_SECRETS,
        name,
        {"refreshInterval": "1s", "secretStoreRef": ref, "target": {"name": f"of-{name}", **target}, "data": data},
    )


def pushing(name: str, keys: Mapping[str, str]) -> JsonObject:
    data = [{"match": {"secretKey": one, "remoteRef": {"remoteKey": key}}} for one, key in keys.items()]
    spec = {
        "refreshInterval": "1s",
        "secretStoreRefs": [{"name": "v1", "kind": "SecretStore"}],
        "selector": {"secret": {"name": "pushed"}},
        "data": data,
    }
    return document(PUSH_SECRETS, name, spec)


@contextmanager
def aws(folder: Path, canaries: Canaries) -> Iterator[dict[str, str]]:
    """A service that holds values, and repeats one when it refuses; yields the environment that leads there."""

    def denied(asked: RecordedRequest) -> StubResponse | None:
        words = f"{asked.key_id} is not authorized: {canaries.plant('words of a service')}"
        return refused("AccessDeniedException", words) if asked.body.get("SecretId") == "denied" else None

    with moto_in_thread(folder) as front:
        broken = f'{{"a": {canaries.plant("a broken value of a service")}'
        admin("secretsmanager", front.behind).create_secret(Name="broken", SecretString=broken)
        front.respond("GetSecretValue", denied)
        yield environment_of(front.url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    canaries, folder = Canaries(), tmp_path_factory.mktemp("manifests")
    port, metrics = free_ports(2)
    everything = [*documents(canaries), *failures(canaries)]
    (folder / "everything.yaml").write_text(yaml.safe_dump_all(everything))
    spoilt = folder / "spoilt"
    spoilt.mkdir()
    (spoilt / "spoilt.yaml").write_text(f"stringData: [{canaries.plant('a manifest that is no YAML')}\n: }}")
    names = (f"fake={port}", "generators", "webhook", "aws")
    flags = [part for name in names for part in ("--provider", name)] + ["-f", str(folder)]
    operator = [f"--metrics-addr=127.0.0.1:{metrics}", "--loglevel=debug", "--store-requeue-interval=1s"]
    operator += ["--unsafe-allow-generic-targets"]
    with (
        aws(tmp_path_factory.mktemp("moto"), canaries) as environment,
        up_running(tmp_path_factory.mktemp("up"), *flags, "--", *operator, environment=environment) as up,
    ):
        (spoilt / "spoilt.yaml").rename(folder / "spoilt.yaml")  # what was there before it is applied by now
        up.wait_for(lambda: "spoilt.yaml" in up.output, "nothing is said about the spoilt manifest")
        yield Site(up, canaries, port, metrics)


@pytest.fixture
async def api(site: Site) -> AsyncIterator[RawApi]:
    async with raw_api(site.up.url, site.up.token, str(site.up.ca_file)) as api:
        yield api


# --- what happens -----------------------------------------------------------------------------------------------------


async def test_nothing_planted_comes_out(site: Site, api: RawApi) -> None:
    bench = Bench(api, site.up.kubeconfig, NAMESPACE, 0)
    await until_everything_was_tried(bench)
    await hostile_calls(site, bench)
    await crashes(site, bench)

    seen = await everything_readable(site, api)

    assert {place: found for place, text in seen.items() if (found := site.canaries.found_in(text))} == {}
    assert [place for place, text in seen.items() if "PRIVATE KEY" in text or "eyJhbGciOi" in text] == []


def test_processes_and_files_of_other_users_see_nothing(site: Site) -> None:
    """All users can read command lines, environments end up in crash reports, files have modes."""
    handed = [site.up.token, "PRIVATE KEY", "eyJhbGciOi"]
    for pid, line in site.up.members().items():
        environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
        assert [word for word in handed if word in line + environment] == []
        assert site.canaries.found_in(line + environment) == []

    files = [path for path in site.up.data.rglob("*") if path.is_file()]
    secret = [path for path in files if holds_secrets(path, site)]

    assert {path.name for path in secret} >= {"kubeconfig", "tls.key"}
    assert [str(path) for path in secret if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def holds_secrets(path: Path, site: Site) -> bool:
    content = path.read_text(errors="replace")
    marks = (site.up.token, "PRIVATE KEY")
    return any(mark in content for mark in marks) or site.canaries.found_in(content) != []


async def until_everything_was_tried(bench: Bench) -> None:
    """The values arrive where they should, and what should fail has failed."""
    for resource, name in ((STORES, "v1"), (STORES_V2, "v2"), (EXTERNAL_SECRETS, "good"), (PUSH_SECRETS, "pushed")):
        await bench.ready(resource, name, is_true)
    failing = [(EXTERNAL_SECRETS, one) for one in ("absent", "internal", "template")]
    failing += [(STORES, "refused"), (PUSH_SECRETS, "refused")]
    kinds = {one.kind: one for one in (EXTERNAL_SECRETS, PUSH_SECRETS)}
    failing += [(kinds[one["kind"]], one["metadata"]["name"]) for one in failures(Canaries()) if one["kind"] in kinds]
    for resource, name in failing:
        await bench.ready(resource, name, is_false, within=60)
    written = await bench.find(SECRETS, "of-good")
    assert written is not None
    assert base64.b64decode(written["data"]["plain"]).startswith(b"CANARY"), "nothing was planted"


def is_true(condition: Condition) -> bool:
    return condition.status == "True"


def is_false(condition: Condition) -> bool:
    return condition.status == "False"


async def hostile_calls(site: Site, bench: Bench) -> None:
    """Calls as the operator would never make them, with values where they do not belong; their errors are kept."""
    plant = site.canaries.plant
    async with fake_subject(site, bench) as subject:
        stored = await subject.push(f"canary/{uuid.uuid4()}", plant("a value that is pushed over the wire").encode())
        assert not stored.HasField("error")
        outcomes = [await subject.push("greeting", plant("a value that is refused over the wire").encode())]
        site.errors += [str(one.error.message) for one in outcomes]
        for context in hostile_contexts(subject, plant):
            await failed(site, subject.get([item("only", "key")], context=context))
        garbage = plant("bytes that are no message").encode()
        for method in ("GetSecrets", "PushSecrets", "Validate"):
            call: Any = subject.channel.unary_unary(f"/{pb.DESCRIPTOR.package}.SecretStoreProvider/{method}")
            await failed(site, call(b"\xff\xff" + garbage, timeout=CALL_SECONDS))
    assert len(site.errors) > 5


def hostile_contexts(subject: Subject, plant: Any) -> Iterator[pb.RequestContext]:
    for where, spec in {
        "a configuration that is no JSON": '{"data": "%s", ',
        "a configuration with an unknown field": '{"%s": 1}',
        "a configuration of a wrong type": '{"data": "%s"}',
        "a configuration with a bad number": '{"data": [], "validationResult": "%s"}',
    }.items():
        context = subject.context()
        context.config.ref.uid = uuid.uuid4().hex
        context.config.inline.spec_json = (spec % plant(where)).encode()
        context.config.inline.resolved.add(json_pointer="/x", secret_value=plant(f"{where}, credential").encode())
        yield context


@asynccontextmanager
async def fake_subject(site: Site, bench: Bench) -> AsyncIterator[Subject]:
    """The fake provider, with the operator's own certificate."""
    name = "external-secrets.provider-fake-client-tls"
    answer = await bench.api.get(SECRETS.path("external-secrets", name))
    files = {key: base64.b64decode(value) for key, value in answer.body["data"].items()}
    identity = Identity(files["ca.crt"], files["tls.crt"], files["tls.key"])
    server = "provider-fake.external-secrets.svc"
    target = Target(f"127.0.0.1:{site.provider_port}", identity, server)
    spec = {"data": [{"key": "greeting", "value": site.canaries.plant("a configured value over the wire")}]}
    async with channel_to(target) as channel:
        handshake = await shake_hands(channel)
        kind = next(one for one in handshake.kinds if one.gvk.kind == "Fake")
        yield Subject(target, channel, handshake, kind, KindFixture(kind="Fake", spec=spec))


async def failed(site: Site, call: Any) -> None:
    """Keep everything that a failed call says: details, trailers, the whole exception."""
    try:
        await call
    except aio.AioRpcError as error:
        trailers = [
            value if isinstance(value, str) else value.decode("latin-1") for _, value in error.trailing_metadata() or ()
        ]
        site.errors += [str(error.details()), *trailers, repr(error)]
    else:
        pytest.fail("a hostile call was served")


async def crashes(site: Site, bench: Bench) -> None:
    """Each component ends in the middle of its work, with and without a chance to say something."""
    for words, number in (
        ("eso_cli.serving fake", signal.SIGKILL),
        ("-m eso_operator", signal.SIGABRT),
        ("eso_cli.serving generators", signal.SIGSEGV),
    ):
        pid = site.up.component(words)
        os.kill(pid, number)
        await asyncio.to_thread(site.up.wait_for, lambda pid=pid: pid not in site.up.members(), "it does not end")  # type: ignore[misc]  # bound per turn
    assert "malformed" in site.up.output, "the object of a wrong type was not refused"
    late = {"provider": {"fake": {"data": [{"key": "a", "value": site.canaries.plant("a value after the crashes")}]}}}
    await bench.create(STORES, "late", spec=late)
    await bench.ready(STORES, "late", is_true, within=60)


# --- what can be read -------------------------------------------------------------------------------------------------


async def everything_readable(site: Site, api: RawApi) -> dict[str, str]:
    """Return, by place, everything that a user without the right to read Secrets can see."""
    seen = {"logs": site.up.output, "errors": "\n".join(site.errors)}
    for path in (*site.up.folder.glob("*.json"), *site.up.data.rglob("ready.json")):
        seen[str(path.relative_to(site.up.folder))] = path.read_text()
    seen["metrics of the operator"] = await eventually(lambda: page(f"127.0.0.1:{site.metrics_port}"), "no metrics")
    for name in ("aws", "fake", "generators", "webhook"):
        seen[f"metrics of {name}"] = await page(site.up.provider_ready(name)["metrics"])
    seen |= await objects(api)
    assert "CREDENTIALS" in seen["logs"] or "CONFIG_INVALID" in seen["logs"], "nothing has failed: this proves nothing"
    assert "eso_grpc_client" in seen["metrics of the operator"]
    assert len(seen["events"]) > 1000
    return seen


async def page(address: str) -> str:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
            return await answer.text()
    except aiohttp.ClientError:
        return ""


async def objects(api: RawApi) -> dict[str, str]:
    """All objects of all kinds but Secrets, without the specs in which people write values."""
    found = {}
    for path, resource in [one async for one in listable(api)]:
        if resource["name"] == "secrets":
            continue
        items = (await api.get(f"{path}/{resource['name']}")).body["items"]
        if resource["kind"] in WHERE_PEOPLE_WRITE_VALUES:
            items = [{key: value for key, value in one.items() if key != "spec"} for one in items]
        name = resource["name"] if path == "/api/v1" else f"{resource['name']} of {path}"
        found[name] = json.dumps(items)
    return found


async def listable(api: RawApi) -> AsyncIterator[tuple[str, JsonObject]]:
    groups = (await api.get("/apis")).body["groups"]
    paths = ["/api/v1", *(f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"])]
    for path in paths:
        for resource in (await api.get(path)).body["resources"]:
            if "list" in resource["verbs"] and "/" not in resource["name"]:
                yield path, resource
