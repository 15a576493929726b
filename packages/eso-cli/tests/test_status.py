"""`eso status` against an API server: its output, its exit codes, and the changes that `--watch` reports."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import KINDS
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_cli.status import (
    HEALTHY,
    MAX_CAUSES,
    MAX_JSON_MESSAGES,
    MAX_MESSAGES,
    UNUSABLE,
    UNWELL,
    StatusOptions,
    StatusPage,
    as_json,
    code_of,
    headline,
    lines,
    run,
)
from eso_testkit.operator.operators import install_crds
from eso_tools.status.causes import causes_of
from eso_tools.status.overview import OVERVIEW_KINDS, Gap, Health, Missing, ObjectId, Overview, Row
from eso_tools.times import distance, time_of_day
from kubebase.clock import rfc3339
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START as NOW
from kubebase.testing.clock import VirtualClock
from kubebase.testing.servers import ApiServer
from kubebase.testing.waiting import eventually
from kuberun.testing.rawapi import MERGE_PATCH, RawApi

ESO = Path(sys.executable).parent / "eso"
SECONDS = 60.0
Printed = pytest.CaptureFixture[str]


def _row(name: str, health: Health, reason: str = "", **fields: Any) -> Row:
    return Row(
        ObjectId("external-secrets.io", "ExternalSecret", ObjectKey("team", name)),
        EXTERNAL_SECRET,
        health,
        reason,
        **fields,
    )


def _ready(status: str, reason: str, message: str = "") -> dict[str, Any]:
    at = rfc3339(NOW)
    return {
        "conditions": [
            {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
        ]
    }


class Cluster:
    """Objects with statuses as the operator writes them."""

    def __init__(self, api: RawApi, namespace: str, kubeconfig: Path) -> None:
        self.api, self.namespace, self.kubeconfig = api, namespace, kubeconfig

    async def create(self, kind: CustomKind[Any], name: str, spec: Any, status: Any) -> None:
        resource = kind.resource()
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
        answer = await self.api.post(resource.path(self.namespace), body)
        assert answer.status == 201, answer.body
        await self.status(kind, name, status)

    async def status(self, kind: CustomKind[Any], name: str, status: Any) -> None:
        path = kind.resource().path(self.namespace, name, "status")
        answer = await self.api.patch(path, {"status": status}, MERGE_PATCH)
        assert answer.status == 200, answer.body

    async def store(self, name: str, status: Any, kind: str = "secretstores") -> None:
        (custom,) = (each for each in KINDS if each.plural == kind and each.group == "external-secrets.io")
        await self.create(custom, name, {"provider": {"fake": {"data": []}}}, status)

    async def secret(self, name: str, status: Any, store: str = "vault") -> None:
        entry = {"secretKey": "pw", "remoteRef": {"key": "db/pw"}}
        await self.create(EXTERNAL_SECRET, name, {"secretStoreRef": {"name": store}, "data": [entry]}, status)

    async def lease(self, ago: timedelta = timedelta(seconds=1), holder: str = "pod-1") -> None:
        """Renew the Lease of an operator, that many seconds ago."""
        at = (NOW - ago).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": at, "leaseDurationSeconds": 15}
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        body = {"metadata": {"name": "external-secrets-controller"}, "spec": spec}
        answer = await self.api.post(leases, body)
        assert answer.status == 201, answer.body

    async def show(self, **fields: Any) -> int:
        options = StatusOptions(self.namespace, kubeconfig=self.kubeconfig, **fields)
        return await run(options, VirtualClock())


@pytest.fixture(scope="module")
def kubeconfig(api_server: ApiServer) -> Path:
    asyncio.run(install_crds(api_server.kubeconfig))
    return api_server.kubeconfig


@pytest.fixture
async def cluster(kubeconfig: Path, api: RawApi, namespace: str) -> Cluster:
    """Leases of operators count wherever they are; those of tests before this one may still exist."""
    leases = await api.get("/apis/coordination.k8s.io/v1/leases")
    for lease in leases.body["items"]:
        meta = lease["metadata"]
        if meta["namespace"].startswith("test-"):
            await api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{meta['namespace']}/leases/{meta['name']}")
    return Cluster(api, namespace, kubeconfig)


BROKEN = _ready("False", "InvalidProviderConfig", "CredentialsRejected: the token expired; renew it")
UNSYNCED = _ready("False", "SecretSyncedError", "could not get secret data")


@pytest.mark.live
async def test_a_namespace_in_order_exits_with_0_and_counts_its_objects(cluster: Cluster, capsys: Printed) -> None:
    await cluster.store("vault", _ready("True", "Valid"))
    await cluster.secret("db", _ready("True", "SecretSynced"))

    code = await cluster.show()

    told = capsys.readouterr().out
    assert code == HEALTHY
    assert told.splitlines()[0] == f"✓ 2 of 2 objects are ready (namespace {cluster.namespace})"
    assert "kubectl get secretstores.external-secrets.io" in told


@pytest.mark.live
async def test_an_operator_that_works_is_not_mentioned(cluster: Cluster, capsys: Printed) -> None:
    await cluster.store("vault", _ready("True", "Valid"))
    await cluster.lease()

    code = await cluster.show()

    told = capsys.readouterr().out
    assert code == HEALTHY
    assert told.startswith("✓ 1 of 1 objects are ready")
    assert "whether an operator works" not in told


@pytest.mark.live
@pytest.mark.parametrize("holder", [pytest.param("pod-1", id="it crashed"), pytest.param("", id="it was stopped")])
async def test_a_missing_operator_is_the_first_line_and_no_object_is_green(
    cluster: Cluster, capsys: Printed, holder: str
) -> None:
    await cluster.store("vault", _ready("True", "Valid"))
    await cluster.lease(ago=timedelta(minutes=5), holder=holder)

    code = await cluster.show()
    told = capsys.readouterr().out.splitlines()
    await cluster.show(as_json=True)
    found = json.loads(capsys.readouterr().out)

    since = rfc3339(NOW - timedelta(minutes=5))
    lease = f"{cluster.namespace}/external-secrets-controller"
    assert code == UNWELL
    assert told[0] == f"✗ no operator works since {time_of_day(since, NOW)}: no operator holds Lease {lease}"
    assert told[1] == "    nothing is refreshed; the states below are from before (5 min ago)"
    assert told[3] == f"? 1 of 1 objects were ready (namespace {cluster.namespace})"
    assert not any(line.startswith("✓") for line in told)
    assert found["healthy"] is False
    assert (found["operator"]["state"], found["operator"]["since"]) == ("absent", since)


@pytest.mark.live
async def test_a_cluster_without_a_lease_of_an_operator_is_shown_with_a_question_mark(
    cluster: Cluster, capsys: Printed
) -> None:
    await cluster.store("vault", _ready("True", "Valid"))

    code = await cluster.show()

    assert code == HEALTHY
    assert capsys.readouterr().out.endswith("? whether an operator works: there is no Lease of an operator\n")


@pytest.mark.live
@pytest.mark.parametrize("watch", [pytest.param(False, id="once"), pytest.param(True, id="live")])
async def test_a_namespace_that_does_not_exist_is_an_error(kubeconfig: Path, capsys: Printed, watch: bool) -> None:
    code = await run(StatusOptions("nosuchns", kubeconfig=kubeconfig, watch=watch), VirtualClock())

    told = capsys.readouterr()
    assert (code, told.out) == (UNUSABLE, "")
    assert told.err == 'eso status: namespace "nosuchns" does not exist; choose another with -n\n'


@pytest.mark.live
async def test_users_of_a_broken_store_are_one_problem_that_comes_first(cluster: Cluster, capsys: Printed) -> None:
    await cluster.store("vault", BROKEN)
    for number in range(7):
        await cluster.secret(f"db-{number}", UNSYNCED)

    code = await cluster.show()

    told = capsys.readouterr().out.splitlines()
    said = f"✗ 7 ExternalSecrets wait for SecretStore {cluster.namespace}/vault: CredentialsRejected since "
    assert code == UNWELL
    assert told[0] == f"✗ 1 problem; 0 of 8 objects are ready (namespace {cluster.namespace})"
    assert told[2].startswith(said)
    assert told[3].strip() == "CredentialsRejected: the token expired; renew it"
    assert told[5].endswith("and 2 more")


@pytest.mark.live
async def test_json_names_the_cause_and_everything_that_waits_for_it(cluster: Cluster, capsys: Printed) -> None:
    await cluster.store("vault", BROKEN)
    await cluster.secret("db", UNSYNCED)

    code = await cluster.show(as_json=True)

    told = json.loads(capsys.readouterr().out)
    (problem,) = told["problems"]
    assert code == UNWELL
    assert (told["healthy"], problem["reason"], problem["since"]) == (False, "CredentialsRejected", rfc3339(NOW))
    assert [each["name"] for each in problem["causedBy"]] == ["vault"]
    assert problem["waiting"] == [
        {
            "resource": "externalsecrets.external-secrets.io",
            "kind": "ExternalSecret",
            "namespace": cluster.namespace,
            "name": "db",
        }
    ]


@pytest.mark.live
async def test_all_namespaces_show_what_one_namespace_does_not(cluster: Cluster, capsys: Printed) -> None:
    await cluster.store("vault", BROKEN)

    code = await run(StatusOptions(all_namespaces=True, kubeconfig=cluster.kubeconfig), VirtualClock())

    assert code == UNWELL
    assert f"{cluster.namespace}/vault" in capsys.readouterr().out


async def test_options_that_exclude_each_other_are_refused(capsys: Printed) -> None:
    assert await run(StatusOptions("team", all_namespaces=True)) == UNUSABLE
    assert capsys.readouterr().err == "eso status: -A shows all namespaces; leave out -n\n"


def test_kinds_that_cannot_be_listed_are_named() -> None:
    page = StatusPage.of(Overview(gaps=(Gap(CLUSTER_SECRET_STORE, Missing.FORBIDDEN),)), NOW)

    assert list(lines(page))[-1] == "? clustersecretstores.external-secrets.io: you may not list it"
    assert code_of(page) == HEALTHY


def test_nothing_to_list_at_all_exits_with_2() -> None:
    gaps = tuple(Gap(custom, Missing.NOT_INSTALLED) for custom in OVERVIEW_KINDS)

    assert code_of(StatusPage.of(Overview(gaps=gaps), NOW)) == UNUSABLE


def test_control_characters_of_others_never_reach_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[31m" + "x" * 400
    page = StatusPage.of(Overview((_row("a\x1b[2J", Health.BAD, "R\x1b[1m", message=hostile),)), NOW)

    text = "\n".join(lines(page)).replace("\x1b[31m✗\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x1b" not in as_json(page)["problems"][0]["says"]


def test_more_problems_than_fit_a_screen_are_counted() -> None:
    rows = tuple(_row(f"s{n}", Health.BAD, f"Reason{n}") for n in range(MAX_CAUSES + 3))

    told = list(lines(StatusPage.of(Overview(rows, left_out=9), NOW)))

    assert "and 3 more problems; `eso status -o json` lists them" in told
    assert told[-1] == "and 9 more objects, which were counted only"


def test_different_messages_of_one_problem_are_listed_up_to_a_bound() -> None:
    rows = tuple(_row(f"s{n}", Health.BAD, "BackendTimeout", message=f"key {n}: no answer") for n in range(30))
    page = StatusPage.of(Overview(rows), NOW)

    told = list(lines(page))
    (problem,) = as_json(page)["problems"]

    assert [line for line in told if "no answer" in line] == [f"    key {n}: no answer" for n in range(MAX_MESSAGES)]
    assert "    and 27 other messages; `eso status -o json` lists more of them" in told
    assert (len(problem["messages"]), problem["messageCount"]) == (MAX_JSON_MESSAGES, 30)


def test_the_time_of_a_cause_is_part_of_its_headline() -> None:
    (cause,) = causes_of(Overview((_row("db", Health.BAD, "NoLuck", since=rfc3339(NOW)),)))

    assert headline(cause, NOW).endswith(f": NoLuck since {time_of_day(rfc3339(NOW), NOW)}")


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param(NOW - timedelta(seconds=30), "30 s ago", id="seconds"),
        pytest.param(NOW - timedelta(minutes=4), "4 min ago", id="minutes"),
        pytest.param(NOW + timedelta(hours=3), "in 3 h", id="ahead"),
        pytest.param(NOW - timedelta(days=9), "9 d ago", id="days"),
    ],
)
def test_a_distance_is_shown_in_its_largest_unit(moment: Any, expected: str) -> None:
    assert distance(rfc3339(moment), NOW) == expected


def test_a_time_of_another_day_has_its_date_and_other_text_stays() -> None:
    assert time_of_day("2026-01-02T03:04:05Z", NOW, UTC) == "2026-01-02 03:04"
    assert (time_of_day("soon", NOW), distance("soon", NOW)) == ("soon", "")


# --- live -------------------------------------------------------------------------------------------------------------


def _watching(cluster: Cluster, *more: str, **channels: Any) -> subprocess.Popen[bytes]:
    command = [str(ESO), "status", "--watch", "-n", cluster.namespace, "--kubeconfig", str(cluster.kubeconfig), *more]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **channels)


async def _until(holds: Callable[[], bool], complaint: str) -> None:
    async def look() -> bool:
        return holds()

    await eventually(look, complaint, within=SECONDS)


@pytest.mark.live
async def test_watching_through_a_pipe_tells_each_change_in_a_line(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.store("vault", _ready("True", "Valid"))
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = _watching(cluster, stdout=file, stderr=subprocess.STDOUT)
        try:
            await _until(lambda: "objects are ready" in output.read_text(), "no first page")
            await cluster.status(KIND, "vault", BROKEN)
            await _until(lambda: "✗ SecretStore" in output.read_text(), "the problem is not told")
            await cluster.status(KIND, "vault", _ready("True", "Valid"))
            await _until(lambda: "✓ over: SecretStore" in output.read_text(), "its end is not told")
            await cluster.lease(ago=timedelta(days=3650))
            await _until(lambda: "✗ no operator works since" in output.read_text(), "the operator is not missed")
        finally:
            process.send_signal(signal.SIGINT)
            code = await asyncio.to_thread(process.wait, SECONDS)

    assert code == UNWELL
    assert "Traceback" not in output.read_text()


@pytest.mark.live
async def test_watching_as_json_prints_one_document_in_a_line(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.store("vault", BROKEN)
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = _watching(cluster, "-o", "json", stdout=file, stderr=subprocess.STDOUT)
        try:
            await _until(lambda: "\n" in output.read_text(), "no document")
        finally:
            process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.wait, SECONDS)

    assert code == UNWELL
    assert [json.loads(line)["healthy"] for line in output.read_text().splitlines()] == [False]


@pytest.mark.live
async def test_watching_on_a_terminal_redraws_the_page(cluster: Cluster) -> None:
    await cluster.store("vault", BROKEN)
    ours, theirs = pty.openpty()
    process = _watching(cluster, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = bytearray()

    def shows(word: bytes) -> Callable[[], bool]:
        def look() -> bool:
            try:
                seen.extend(os.read(ours, 65536))
            except OSError:
                return word in seen
            return word in seen

        return look

    try:
        await _until(shows(b"CredentialsRejected"), "the problem is not drawn")
        seen.clear()
        await cluster.status(KIND, "vault", _ready("True", "Valid"))
        await _until(shows("✓".encode()), "the page is not drawn again")
    finally:
        process.send_signal(signal.SIGINT)
        code = await asyncio.to_thread(process.wait, SECONDS)
        os.close(ours)

    assert code == HEALTHY


(KIND,) = (each for each in KINDS if each.crd_name == "secretstores.external-secrets.io")
