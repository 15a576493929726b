"""`eso why` against an API server: what is printed, how it exits, and that no Secret is ever read."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecretSpec, ExternalSecretStatus
from eso_api.pushsecret import PUSH_SECRET
from eso_cli.evidence import Evidence, Look, Recorded, Sight, Source, gather
from eso_cli.story import Mark, Step, Story, story_of
from eso_cli.why import HEALTHY, UNUSABLE, UNWELL, Options, as_json, kind_named, lines, run
from eso_operator.targets.marks import HASH_ANNOTATION
from eso_operator.testing.operators import install_crds
from kuberun import config
from kuberun.client import Client
from kuberun.clock import rfc3339
from kuberun.errors import Forbidden
from kuberun.meta import Condition, ObjectKey, ObjectMeta
from kuberun.requests import Metadata, Request
from kuberun.testing.clock import START as NOW
from kuberun.testing.clock import VirtualClock
from kuberun.testing.rawapi import MERGE_PATCH, RawApi
from kuberun.testing.servers import ApiServer
from kuberun.transport import AiohttpTransport, Transport

CANARY = "CANARY-hunter2"
GROUP = "/apis/external-secrets.io/v1"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "troubleshooting.md"
LATELY = rfc3339(NOW - timedelta(minutes=2))
SOON = rfc3339(NOW + timedelta(minutes=4))
Printed = pytest.CaptureFixture[str]


class Spy:
    """A transport that remembers what was asked and answered, and is refused what is forbidden."""

    def __init__(self, inner: Transport, forbidden: str = "none") -> None:
        self._inner = inner
        self._forbidden = forbidden
        self.asked: list[Request] = []
        self.answers: list[bytes] = []

    async def request(self, request: Request) -> bytes:
        self.asked.append(request)
        if self._forbidden in request.path:
            raise Forbidden(403, "Forbidden", "no")
        self.answers.append(await self._inner.request(request))
        return self.answers[-1]

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class Scene:
    """A store, an ExternalSecret that reads it, and its Secret, with statuses as the operator writes them."""

    def __init__(self, api: RawApi, namespace: str, kubeconfig: Path) -> None:
        self.api, self.namespace, self.kubeconfig = api, namespace, kubeconfig

    async def build(self) -> None:
        entry = {"secretKey": "pw", "remoteRef": {"key": "db/pw"}}
        sources = {"templateFrom": [{"secret": {"name": "templates", "items": [{"key": "k"}]}}]}
        spec = {"secretStoreRef": {"name": "vault"}, "data": [entry], "target": {"template": sources}}
        await self.create(f"{GROUP}/namespaces/NS/secretstores", "vault", spec={"provider": {"vault": {"server": "x"}}})
        await self.create(f"{GROUP}/namespaces/NS/externalsecrets", "db", spec=spec)
        await self.create("/api/v1/namespaces/NS/secrets", "templates", stringData={"k": CANARY})
        await self.create("/api/v1/namespaces/NS/secrets", "db", stringData={"pw": CANARY})
        patch = {"metadata": {"annotations": {HASH_ANNOTATION: "h"}}}
        await self.api.patch(f"/api/v1/namespaces/{self.namespace}/secrets/db", patch, MERGE_PATCH)
        await self.status("secretstores", "vault", conditions=[_ready("True", "Valid")])

    async def status(self, plural: str, name: str, **status: Any) -> None:
        path = f"{GROUP}/namespaces/{self.namespace}/{plural}/{name}/status"
        done = await self.api.patch(path, {"status": status}, MERGE_PATCH)
        assert done.status == 200, done.body

    async def why(self, name: str = "db", *, as_json: bool = False) -> int:
        options = Options("es", name, self.namespace, self.kubeconfig, as_json=as_json)
        return await run(options, VirtualClock())

    async def label(self, path: str, **labels: str) -> None:
        patch = {"metadata": {"labels": labels}}
        done = await self.api.patch(path.replace("NS", self.namespace), patch, MERGE_PATCH)
        assert done.status == 200, done.body

    async def create(self, path: str, name: str, **fields: Any) -> None:
        done = await self.api.post(
            path.replace("NS", self.namespace), {"metadata": {"name": name}, **_typed(path), **fields}
        )
        assert done.status == 201, done.body


def _typed(path: str) -> dict[str, str]:
    kinds = {"secretstores": "SecretStore", "externalsecrets": "ExternalSecret", "pushsecrets": "PushSecret"}
    group, plural = path.partition("/namespaces/")[0].removeprefix("/apis/"), path.rpartition("/")[2]
    return {"apiVersion": group, "kind": kinds[plural]} if plural in kinds else {}


def _ready(status: str, reason: str, message: str = "") -> dict[str, str]:
    at = rfc3339(NOW)
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


@pytest.fixture(scope="module")
def kubeconfig(api_server: ApiServer) -> Path:
    asyncio.run(install_crds(api_server.kubeconfig))
    return api_server.kubeconfig


@pytest.fixture
async def scene(kubeconfig: Path, api: RawApi, namespace: str) -> Scene:
    built = Scene(api, namespace, kubeconfig)
    await built.build()
    return built


@pytest.mark.live
async def test_an_object_in_order_is_told_with_every_step_of_its_way(scene: Scene, capsys: Printed) -> None:
    await scene.status("externalsecrets", "db", conditions=[_ready("True", "SecretSynced")], refreshTime=rfc3339(NOW))

    code = await scene.why()

    told = capsys.readouterr().out
    assert code == HEALTHY
    assert [line.strip()[:25] for line in told.splitlines() if line.lstrip()[0] in "✓✗?"] == [
        f"✓ ExternalSecret {scene.namespace}"[:25],
        "✓ SecretStore vault: Valid"[:25],
        "? provider: no class that"[:25],
        "✓ entries: 1 read",
        "✓ template: rendered",
        "✓ Secret templates: it exists"[:25],
        "✓ Secret db: it exists, owned"[:25],
    ]
    assert CANARY not in told


@pytest.mark.live
async def test_trouble_is_told_where_it_is_with_the_next_attempt(scene: Scene, capsys: Printed) -> None:
    outcome = {"path": "spec.data[0]", "reason": "SecretNotFound", "remoteKey": "db/pw", "message": "does not exist"}
    failed = _ready("False", "SecretSyncedError", "could not get secret data from provider: x")
    await scene.status("externalsecrets", "db", conditions=[failed], outcomes=[outcome], nextAttemptTime=SOON)

    code = await scene.why(as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert (code, told["healthy"], told["nextAttemptTime"]) == (UNWELL, False, SOON)
    assert told["cause"] == "spec.data[0] (key db/pw): SecretNotFound: does not exist"


@pytest.mark.live
async def test_an_object_that_is_not_there_is_said_so(scene: Scene, capsys: Printed) -> None:
    code = await scene.why("nobody")

    assert code == UNWELL
    assert capsys.readouterr().out == f"✗ ExternalSecret {scene.namespace}/nobody: does not exist\n"


@pytest.mark.live
async def test_of_secrets_only_the_metadata_is_asked_for(scene: Scene) -> None:
    spy = Spy(AiohttpTransport(config.load(scene.kubeconfig)))
    client = Client(spy)

    found = await gather(client, EXTERNAL_SECRET, ObjectKey(scene.namespace, "db"))
    await client.close()

    asked = [request for request in spy.asked if "/secrets/" in request.path]
    assert isinstance(found, Evidence)
    assert [request.path.rpartition("/")[2] for request in asked] == ["db", "templates"]
    assert {request.accept for request in asked} == {Metadata.ONLY}
    assert not any(CANARY.encode() in answer for answer in spy.answers)


@pytest.mark.live
async def test_what_may_not_be_read_is_not_known_and_stops_nothing(scene: Scene) -> None:
    client = Client(Spy(AiohttpTransport(config.load(scene.kubeconfig)), forbidden="/secrets/"))

    found = await gather(client, EXTERNAL_SECRET, ObjectKey(scene.namespace, "db"))
    await client.close()

    assert isinstance(found, Evidence)
    assert [(sight.look, sight.why) for sight in found.secrets] == [(Look.HIDDEN, "you may not read it")]
    assert [source.sight.look for source in found.sources] == [Look.FOUND]


@pytest.mark.live
async def test_a_push_by_label_is_followed_to_every_store_and_secret(scene: Scene) -> None:
    labels = {"matchLabels": {"team": "blue"}}
    spec = {"secretStoreRefs": [{"labelSelector": labels}], "selector": {"secret": {"selector": labels}}}
    await scene.label(f"{GROUP}/namespaces/NS/secretstores/vault", team="blue")
    await scene.label("/api/v1/namespaces/NS/secrets/db", team="blue")
    await scene.create("/apis/external-secrets.io/v1alpha1/namespaces/NS/pushsecrets", "all", spec=spec)
    client = Client(AiohttpTransport(config.load(scene.kubeconfig)))

    found = await gather(client, PUSH_SECRET, ObjectKey(scene.namespace, "all"))
    await client.close()

    assert isinstance(found, Evidence)
    assert [str(source.sight) for source in found.sources] == ["SecretStore vault"]
    assert [str(sight) for sight in found.secrets] == ["Secret db"]


def test_the_guide_shows_what_is_printed() -> None:
    subject = EXTERNAL_SECRET.type(
        metadata=ObjectMeta(name="checkout", namespace="shop"),
        spec=msgspec.convert(
            {"secretStoreRef": {"name": "vault"}, "data": [{"secretKey": "a", "remoteRef": {"key": "shop/checkout"}}]},
            ExternalSecretSpec,
        ),
        status=msgspec.convert(
            {
                "conditions": [_ready("False", "SecretSyncedError", "could not get secret data from provider")],
                "outcomes": [
                    {
                        "path": "spec.data[0]",
                        "reason": "SecretNotFound",
                        "remoteKey": "shop/checkout",
                        "store": "SecretStore vault",
                        "message": '"shop/checkout" does not exist',
                        "since": LATELY,
                    }
                ],
                "nextAttemptTime": SOON,
            },
            ExternalSecretStatus,
        ),
    )
    valid, connected = (Condition(type="Ready", status="True", reason=word) for word in ("Valid", "Connected"))
    address = "grpc://provider-vault.external-secrets.svc:8080"
    provider = Sight("ClusterProviderClass", ObjectKey("", "vault"), conditions=(connected,), address=address)
    store = Sight("SecretStore", ObjectKey("shop", "vault"), conditions=(valid,))
    evidence = Evidence(
        subject,
        sources=(Source(store, True, providers=(provider,)),),
        secrets=(Sight("Secret", ObjectKey("shop", "checkout"), Look.ABSENT, "does not exist"),),
        events=(
            Recorded(
                reason="UpdateFailed",
                message="spec.data[0] (key: shop/checkout): SecretNotFound",
                last_timestamp=LATELY,
            ),
        ),
    )

    told = "\n".join(_without_colours(lines(story_of(evidence, NOW), NOW)))

    assert f"```text\n{told}\n```" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param(Options("pod", "x"), 'no story about "pod"', id="another kind"),
        pytest.param(Options("es", "x", kubeconfig=Path("/none")), "/none", id="no such kubeconfig"),
    ],
)
async def test_what_cannot_be_told_is_said_in_a_line(options: Options, problem: str, capsys: Printed) -> None:
    code = await run(options)

    printed = capsys.readouterr()
    assert (code, printed.out) == (UNUSABLE, "")
    assert problem in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("word", ["externalsecret", "ExternalSecrets", "es", "externalsecret.external-secrets.io"])
def test_a_kind_goes_by_the_names_that_kubectl_takes(word: str) -> None:
    assert kind_named(word) is EXTERNAL_SECRET


def test_what_others_wrote_cannot_steer_a_terminal() -> None:
    story = Story(Step("object", Mark.BAD, "a\x1b[2Jb\nc\u202ed", ("n\rote",)))

    printed = list(_without_colours(lines(story, NOW)))

    assert printed == ["✗ a[2Jb cd", "    n ote"]
    assert as_json(story)["cause"] == "a[2Jb cd"


def _without_colours(told: Iterator[str]) -> Iterator[str]:
    """Of what a terminal obeys, only that."""
    return (re.sub(r"\x1b\[(3[0-9]|0)m", "", line) for line in told)


def test_the_command_passes_its_arguments_on(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("why", "es", "db", "-n", "app", "--kubeconfig", "/none", "-o", "json")

    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert done.stderr.startswith("eso why: ")
