"""`eso why` against an API server: its output, its exit codes, its shell completion."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecretSpec, ExternalSecretStatus
from eso_api.kinds import KINDS, installed_kinds
from eso_cli import completion
from eso_cli.main import commands
from eso_cli.why import HEALTHY, UNUSABLE, UNWELL, WhyOptions, as_json, lines, run
from eso_operator.targets.metadata import HASH_ANNOTATION, MANAGED_LABEL
from eso_testkit.operator.operators import install_crds
from eso_tools.objects import AnyKind, ObjectSummary, ReadState, RecordedEvent, kinds_named, named_among
from eso_tools.why.explanation import Explanation, Finding, Mark, explanation_of
from eso_tools.why.inputs import Inputs, Source
from eso_tools.why.path import ProviderPath
from kubebase.clock import rfc3339
from kubebase.meta import Condition, ObjectKey, ObjectMeta
from kubebase.testing.clock import START as NOW
from kubebase.testing.clock import VirtualClock
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import MERGE_PATCH, RawApi

CANARY = "CANARY-hunter2"
GROUP = "/apis/external-secrets.io/v1"
ALPHA = "/apis/external-secrets.io/v1alpha1"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "troubleshooting.md"
LATELY = rfc3339(NOW - timedelta(minutes=2))
SOON = rfc3339(NOW + timedelta(minutes=4))
Printed = pytest.CaptureFixture[str]


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

    async def status(self, plural: str, name: str, *, group: str = GROUP, **status: Any) -> None:
        path = f"{group}/namespaces/{self.namespace}/{plural}/{name}/status"
        done = await self.api.patch(path, {"status": status}, MERGE_PATCH)
        assert done.status == 200, done.body

    async def why(self, name: str = "db", *, as_json: bool = False) -> int:
        options = WhyOptions("es", name, self.namespace, self.kubeconfig, as_json=as_json)
        return await run(options, VirtualClock())

    async def why_secret(self, name: str, *, as_json: bool = False) -> int:
        options = WhyOptions(f"secret/{name}", "", self.namespace, self.kubeconfig, as_json=as_json)
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
    kinds = {
        "pushsecrets": "PushSecret",
        "secretstores": "SecretStore",
        "externalsecrets": "ExternalSecret",
        "providerclasses": "ProviderClass",
    }
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
async def test_a_healthy_object_is_shown_with_every_step(scene: Scene, capsys: Printed) -> None:
    await scene.status("externalsecrets", "db", conditions=[_ready("True", "SecretSynced")], refreshTime=rfc3339(NOW))

    code = await scene.why()

    told = capsys.readouterr().out
    assert code == HEALTHY
    assert [line.strip()[:25] for line in told.splitlines() if line.lstrip()[0] in "✓✗?"] == [
        f"✓ ExternalSecret {scene.namespace}"[:25],
        "? provider: ProviderNotInstalled"[:25],
        "✓ SecretStore vault: Valid"[:25],
        "✓ entries: 1 read",
        "✓ Secret templates: it exists"[:25],
        "✓ template: rendered",
        "✓ Secret db: it exists, owned"[:25],
    ]
    assert CANARY not in told


@pytest.mark.live
async def test_a_problem_is_shown_at_its_step_with_the_next_attempt(scene: Scene, capsys: Printed) -> None:
    outcome = {"path": "spec.data[0]", "reason": "SecretNotFound", "remoteKey": "db/pw", "message": "does not exist"}
    failed = _ready("False", "SecretSyncedError", "could not get secret data from provider: x")
    await scene.status("externalsecrets", "db", conditions=[failed], outcomes=[outcome], nextAttemptTime=SOON)

    code = await scene.why(as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert (code, told["healthy"], told["nextAttemptTime"]) == (UNWELL, False, SOON)
    assert told["cause"] == "spec.data[0] (key db/pw): SecretNotFound: does not exist"


@pytest.mark.live
async def test_a_namespace_that_does_not_exist_is_an_error(kubeconfig: Path, capsys: Printed) -> None:
    code = await run(WhyOptions("es", "db", "nosuchns", kubeconfig), VirtualClock())

    assert code == UNUSABLE
    assert capsys.readouterr().err == 'eso why: namespace "nosuchns" does not exist; choose another with -n\n'


@pytest.mark.live
async def test_a_missing_object_is_reported_as_missing(scene: Scene, capsys: Printed) -> None:
    code = await scene.why("absent")

    assert code == UNWELL
    assert capsys.readouterr().out == f"✗ ExternalSecret {scene.namespace}/absent: does not exist\n"


@pytest.mark.live
async def test_an_object_of_the_same_name_in_another_group_is_pointed_out(scene: Scene, capsys: Printed) -> None:
    inline = {"providerConfig": {"inline": {"kind": "Backend", "spec": {}}}}
    v2 = "/apis/secretstore.external-secrets.io/v2alpha1/namespaces/NS/secretstores"
    await scene.create(v2, "vault", spec=inline)

    await run(WhyOptions("ss/vault", namespace=scene.namespace, kubeconfig=scene.kubeconfig))

    told = capsys.readouterr().out
    assert "    there is another: eso why secretstores.secretstore.external-secrets.io/vault\n" in told


@pytest.mark.live
async def test_a_name_with_a_typing_error_is_corrected(scene: Scene, capsys: Printed) -> None:
    await scene.status("externalsecrets", "db", conditions=[_ready("True", "SecretSynced")])

    code = await run(WhyOptions("ss/valt", namespace=scene.namespace, kubeconfig=scene.kubeconfig))

    assert code == UNWELL
    assert capsys.readouterr().out.splitlines()[1:] == ["    did you mean vault?"]


@pytest.mark.live
async def test_a_secret_is_explained_by_the_object_that_writes_it(scene: Scene, capsys: Printed) -> None:
    outcome = {"path": "spec.data[0]", "reason": "SecretNotFound", "remoteKey": "db/pw", "message": "does not exist"}
    failed = _ready("False", "SecretSyncedError", "could not get secret data from provider: x")
    await scene.status("externalsecrets", "db", conditions=[failed], outcomes=[outcome])

    code = await scene.why_secret("db")

    told = capsys.readouterr().out.splitlines()
    assert code == UNWELL
    assert told[0] == f"Secret {scene.namespace}/db: it exists; ExternalSecret db writes it"
    assert told[2] == f"ExternalSecret {scene.namespace}/db: SecretSyncedError"
    assert "SecretNotFound: does not exist" in next(line for line in told if "✗" in line)


@pytest.mark.live
async def test_a_secret_that_does_not_exist_is_explained_by_the_object_that_would_write_it(
    scene: Scene, capsys: Printed
) -> None:
    gone = await scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/secrets/db")
    assert gone.status == 200

    code = await scene.why_secret("db", as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert (code, told["healthy"]) == (UNWELL, False)
    assert told["object"]["says"] == f"Secret {scene.namespace}/db: it does not exist; ExternalSecret db writes it"
    assert [each["object"]["says"][:14] for each in told["explains"]] == ["ExternalSecret"]


@pytest.mark.live
@pytest.mark.parametrize(
    "secret",
    [
        pytest.param({"name": "templates"}, id="by name"),
        pytest.param({"selector": {"matchLabels": {"team": "a"}}}, id="by label"),
    ],
)
async def test_a_secret_is_explained_by_the_object_that_pushes_it(
    scene: Scene, capsys: Printed, secret: dict[str, Any]
) -> None:
    await scene.label("/api/v1/namespaces/NS/secrets/templates", team="a")
    spec = {"selector": {"secret": secret}, "secretStoreRefs": [{"name": "vault"}]}
    await scene.create(f"{ALPHA}/namespaces/NS/pushsecrets", "out", spec=spec)

    code = await scene.why_secret("templates")

    told = capsys.readouterr().out.splitlines()
    assert code == UNWELL
    assert told[0] == f"Secret {scene.namespace}/templates: it exists; PushSecret out reads it"
    assert told[2].startswith(f"✗ PushSecret {scene.namespace}/out: ")


@pytest.mark.live
async def test_a_secret_that_nothing_uses_is_not_managed_and_is_no_problem(scene: Scene, capsys: Printed) -> None:
    code = await scene.why_secret("templates")

    unused = "no ExternalSecret of its namespace writes it and no PushSecret reads it"
    assert code == HEALTHY
    assert capsys.readouterr().out == (
        f"✓ Secret {scene.namespace}/templates: it exists; {unused}; External Secrets does not manage it\n"
    )


@pytest.mark.live
async def test_a_secret_that_does_not_exist_and_that_nothing_writes_is_missing(scene: Scene, capsys: Printed) -> None:
    code = await scene.why_secret("absent")

    unused = "no ExternalSecret of its namespace writes it and no PushSecret reads it"
    assert code == UNWELL
    assert capsys.readouterr().out == f"✗ Secret {scene.namespace}/absent: it does not exist; {unused}\n"


@pytest.mark.live
async def test_a_secret_whose_external_secret_was_deleted_is_not_updated_any_more(
    scene: Scene, capsys: Printed
) -> None:
    await scene.label("/api/v1/namespaces/NS/secrets/templates", **{MANAGED_LABEL: "true"})

    code = await scene.why_secret("templates")

    assert code == UNWELL
    assert "an ExternalSecret wrote it and does not exist any more, so nothing updates it" in capsys.readouterr().out


DOWN = "provider-vault does not answer: connection refused"


@pytest.mark.live
async def test_the_first_cross_is_the_cause_and_a_sentence_is_printed_once(scene: Scene, capsys: Printed) -> None:
    """A provider that is down makes its store unready, and that the ExternalSecret; both conditions repeat why."""
    service = {"address": f"grpc://provider-vault.{scene.namespace}.svc:8080", "v1ProviderKeys": ["vault"]}
    await scene.create(f"{ALPHA}/namespaces/NS/providerclasses", "provider-vault", spec=service)
    refused = _ready("False", "Refused", DOWN)
    await scene.status("providerclasses", "provider-vault", group=ALPHA, conditions=[refused])
    unready = _ready("False", "InvalidProviderConfig", f"Refused: {DOWN}")
    await scene.status("secretstores", "vault", conditions=[unready])
    outcome = {"path": "spec.data[0]", "reason": "StoreNotReady", "step": "Fetch", "message": f"vault: {DOWN}"}
    failed = _ready("False", "SecretSyncedError", f"could not get secret data from provider: spec.data[0]: {DOWN}")
    await scene.status("externalsecrets", "db", conditions=[failed], outcomes=[outcome])

    code = await scene.why()

    told = capsys.readouterr().out
    crosses = [line.strip() for line in told.splitlines() if line.strip().startswith("✗")]
    assert code == UNWELL
    assert crosses == [
        f"✗ provider ProviderClass provider-vault: Refused: {DOWN}",
        "✗ SecretStore vault: InvalidProviderConfig",
        "✗ spec.data[0]: StoreNotReady",
    ]
    assert told.count(DOWN) == 1


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
    provider = ObjectSummary("ClusterProviderClass", ObjectKey("", "vault"), conditions=(connected,), address=address)
    store = ObjectSummary("SecretStore", ObjectKey("shop", "vault"), conditions=(valid,))
    inputs = Inputs(
        EXTERNAL_SECRET,
        ObjectSummary("ExternalSecret", subject.metadata.key, conditions=tuple(subject.status.conditions)),
        subject,
        sources=(Source(store, ProviderPath(provider=provider)),),
        objects=(ObjectSummary("Secret", ObjectKey("shop", "checkout"), ReadState.ABSENT, "does not exist"),),
        events=(
            RecordedEvent(
                reason="UpdateFailed",
                message='spec.data[0] (key: shop/checkout): SecretNotFound: "shop/checkout" does not exist',
                last_timestamp=LATELY,
            ),
        ),
    )

    told = "\n".join(_without_colours(lines(explanation_of(inputs, NOW), NOW)))

    assert f"```text\n{told}\n```" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param(WhyOptions("pod", "x"), "the kinds are acraccesstoken, ", id="another kind"),
        pytest.param(WhyOptions("pushsecrt", "x"), "did you mean pushsecret or", id="a kind with a typing error"),
        pytest.param(WhyOptions("es"), "KIND NAME or KIND/NAME", id="no name"),
        pytest.param(WhyOptions("es/x", "y"), "KIND NAME or KIND/NAME", id="two names"),
        pytest.param(WhyOptions("es", "x", kubeconfig=Path("/none")), "/none", id="no such kubeconfig"),
    ],
)
async def test_an_unknown_state_is_reported_in_one_line(options: WhyOptions, problem: str, capsys: Printed) -> None:
    code = await run(options)

    printed = capsys.readouterr()
    assert (code, printed.out) == (UNUSABLE, "")
    assert problem in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("word", ["externalsecret", "ExternalSecrets", "es", "externalsecret.external-secrets.io"])
def test_a_kind_goes_by_the_names_that_kubectl_takes(word: str) -> None:
    assert kinds_named(word) == [EXTERNAL_SECRET]


@pytest.mark.parametrize(
    ("word", "groups"),
    [
        pytest.param("ss", ["external-secrets.io", "secretstore.external-secrets.io"], id="a short name"),
        pytest.param("ssv2", ["secretstore.external-secrets.io", "external-secrets.io"], id="a short name of v2"),
        pytest.param("secretstore", ["external-secrets.io", "secretstore.external-secrets.io"], id="a kind"),
        pytest.param("secretstores.secretstore.external-secrets.io", ["secretstore.external-secrets.io"], id="a group"),
        pytest.param("secretstore.v1.external-secrets.io", ["external-secrets.io"], id="a version"),
        pytest.param("pod", [], id="another kind"),
    ],
)
def test_a_kind_of_two_groups_means_both_unless_the_group_is_named(word: str, groups: list[str]) -> None:
    assert [kind.group for kind in kinds_named(word)] == groups


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.crd_name) for kind in KINDS])
def test_a_kind_of_ours_is_found_as_if_all_providers_were_asked(kind: AnyKind) -> None:
    everywhere = list(dict.fromkeys((*KINDS, *installed_kinds())))
    words = (kind.name, kind.plural, *kind.short_names, kind.crd_name, f"{kind.name}.{kind.versions[0]}.{kind.group}")

    assert [kinds_named(word) for word in words] == [named_among(everywhere, word) for word in words]


def test_text_of_other_writers_cannot_control_a_terminal() -> None:
    explanation = Explanation(Finding("object", Mark.BAD, "a\x1b[2Jb\nc\u202ed", notes=("n\rote",)))

    printed = list(_without_colours(lines(explanation, NOW)))

    assert printed == [r"✗ a\x1b[2Jb c\u202ed", "    n ote"]
    assert as_json(explanation)["cause"] == r"a\x1b[2Jb c\u202ed"


def _without_colours(told: Iterator[str]) -> Iterator[str]:
    """Of what a terminal obeys, only that."""
    return (re.sub(r"\x1b\[(3[0-9]|0)m", "", line) for line in told)


def test_the_command_passes_its_arguments_on(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("why", "es", "db", "-n", "app", "--kubeconfig", "/none", "-o", "json")

    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert done.stderr.startswith("eso why: ")


# --- shell completion -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["externals"], {"externalsecret"}, id="a kind"),
        pytest.param(["es", ""], {"db"}, id="a name"),
        pytest.param(["es", "x"], set(), id="no such name"),
        pytest.param(["ss/va"], {"ss/vault"}, id="a name after a slash"),
        pytest.param(["pod", ""], set(), id="another kind"),
    ],
)
@pytest.mark.live
async def test_kinds_and_names_are_completed(
    scene: Scene, words: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "SECONDS", 60.0)  # a loaded machine answers late

    offered = await asyncio.to_thread(_completed, scene.kubeconfig, scene.namespace, *words)

    assert set(offered.split()) == expected


@pytest.mark.live
async def test_a_name_that_comes_late_is_not_completed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.0)

    assert await asyncio.to_thread(_completed, scene.kubeconfig, scene.namespace, "es", "") == ""


def test_without_an_api_server_no_name_is_completed_and_nothing_is_printed() -> None:
    assert _completed(Path("/none"), "app", "es", "") == ""


def _completed(kubeconfig: Path, namespace: str, *words: str) -> str:
    """Return everything that is printed when bash asks how these words go on."""
    line = ["eso", "why", "-n", namespace, *words]
    asked = {"_ESO_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    done = CliRunner().invoke(commands, prog_name="eso", env={**asked, "KUBECONFIG": str(kubeconfig)})
    assert done.exit_code == 0
    return done.output.strip()
