"""Helm's records and the values of Go's chart, as `eso preflight` reads them."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from eso_operator.flags import Verdict, examine
from eso_tools.preflight.chartvalues import VALUES, chart_values, judge_values
from eso_tools.preflight.findings import Level
from eso_tools.preflight.helmrecords import TYPE, RecordError, release_of
from eso_tools.preflight.snapshot import Owner, Release, Snapshot, Workload, WorkloadRole
from kubebase.meta import ObjectKey

CANARY = "CANARY-8f3a"
OWNER = Owner("external-secrets", "eso")
MANIFEST = """---
# Source: external-secrets/templates/crds/externalsecret.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: externalsecrets.external-secrets.io
  annotations:
    helm.sh/resource-policy: keep
spec:
  group: external-secrets.io

  versions:
    - {name: v1}
status: {}
---
kind: "CustomResourceDefinition"
spec:
  # a comment
  x: 1
metadata:
  name: secretstores.external-secrets.io
---
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
---
kind: ConfigMap
metadata: {name: a}
data:
  text: |
    kind: CustomResourceDefinition
"""
RECORD = {
    "chart": {"metadata": {"name": "external-secrets", "version": "2.8.0"}, "values": {"a": "default"}},
    "config": {"podLabels": {"a": CANARY}},
    "manifest": MANIFEST,
}


def secret(record: Any, *, packed: bool = True, **fields: Any) -> dict[str, Any]:
    raw = json.dumps(record).encode()
    inner = base64.b64encode(gzip.compress(raw) if packed else raw)
    return {"type": TYPE, "data": {"release": base64.b64encode(inner).decode()}, **fields}


@pytest.mark.parametrize("packed", [pytest.param(True, id="gzipped"), pytest.param(False, id="plain, as Helm 2 did")])
def test_a_record_tells_chart_values_and_which_crds_are_kept(packed: bool) -> None:
    release = release_of(OWNER, secret(RECORD, packed=packed))

    assert release.chart == "external-secrets-2.8.0"
    assert release.definitions == {
        "externalsecrets.external-secrets.io": True,
        "secretstores.external-secrets.io": False,
    }
    assert release.values == RECORD["config"]
    assert CANARY not in repr(release)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"type": "Opaque", "data": {"release": ""}}, id="another type of Secret"),
        pytest.param({"type": TYPE}, id="no data"),
        pytest.param({"type": TYPE, "data": {"release": "AAAA"}}, id="not base64 inside"),
        pytest.param(secret([1]), id="not an object"),
        pytest.param(secret({**RECORD, "manifest": "kind: CustomResourceDefinition\n\tx"}), id="a broken manifest"),
    ],
)
def test_a_record_that_cannot_be_read_says_so(document: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        release_of(OWNER, document)


def test_a_record_that_unpacks_to_far_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eso_tools.preflight.helmrecords._MAX_BYTES", 1 << 10)

    with pytest.raises(RecordError, match="larger than"):
        release_of(OWNER, secret({**RECORD, "manifest": "#" * (1 << 16)}))


@pytest.mark.parametrize(
    ("values", "part", "subject"),
    [
        pytest.param(
            {"webhook": {"port": 1, "create": False}}, "without a function", "webhook (2 values)", id="a block"
        ),
        pytest.param(
            {"certController": {"create": True}}, "without a function", "certController.create", id="one value"
        ),
        pytest.param({"enableHTTP2": True}, "without a function", "enableHTTP2 (--enable-http2)", id="by its flag"),
        pytest.param({"image": {"repository": "r", "tag": "t"}}, "another meaning", "image.repository", id="the image"),
        pytest.param(
            {"concurrent": 5}, "another meaning", "concurrent (--concurrent)", id="a flag with another meaning"
        ),
        pytest.param(
            {"extraArgs": {"loglevel": False}}, "another meaning", "extraArgs.loglevel", id="false in extraArgs"
        ),
        pytest.param({"extraArgs": {"nope": 1}}, "unknown", "extraArgs.nope", id="an unknown flag"),
        pytest.param({"log": {"level": "loud"}}, "refuses", "log.level (--loglevel)", id="a refused value"),
        pytest.param({"replicas": 2, "log": {"lvl": 1}}, "neither chart knows", "log.lvl", id="an unknown value"),
        pytest.param(
            {"serviceAccount": {"create": True, "annotations": {"iam.gke.io/a": "x"}}},
            "another meaning",
            "serviceAccount.annotations.iam.gke.io/a",
            id="the longest path wins",
        ),
    ],
)
def test_a_value_that_needs_attention_is_named(values: Any, part: str, subject: str) -> None:
    (finding,) = (each for each in judge_values(values, "--values") if each.level is Level.WARNING)

    assert part in finding.text
    assert finding.details[0].subject == subject


@pytest.mark.parametrize(
    ("values", "count"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({"podLabels": {"a": "1", "b": "2"}, "replicaCount": 2}, 2, id="values with the same meaning"),
        pytest.param(
            {"resources": {}, "image": {"flavour": ""}, "extraEnv": [], "affinity": None}, 0, id="empty values"
        ),
        pytest.param(
            {"bitwarden-sdk-server": {"enabled": False}, "crds": {"conversion": {"enabled": False}}}, 2, id="off"
        ),
        pytest.param(
            {"crds": {"createPushSecret": True}, "enableHTTP2": False, "leaderElect": True},
            3,
            id="switches as they are here",
        ),
        pytest.param({"log": {"level": "debug"}, "processPushSecret": False, "scopedNamespace": "a"}, 3, id="flags"),
    ],
)
def test_values_with_the_same_meaning_are_counted(values: Any, count: int) -> None:
    (finding,) = judge_values(values, "--values")

    assert (finding.level, finding.text) == (
        Level.FACT,
        f"--values: {count} chart value{'' if count == 1 else 's'} with the same meaning",
    )


def test_no_value_is_ever_printed() -> None:
    values = {
        "extraEnv": [{"name": "TOKEN", "value": CANARY}],
        "extraArgs": {"loglevel": CANARY, "made-up": CANARY, "store-requeue-interval": CANARY},
        "log": {"level": CANARY},
        "webhook": {"extraEnv": CANARY},
        "strange": CANARY,
    }

    assert CANARY not in str(list(judge_values(values, "--values")))


def test_values_of_a_file_replace_those_of_the_release() -> None:
    go = Workload(ObjectKey("external-secrets", "d"), WorkloadRole.GO_OPERATOR, owner=OWNER)
    release = Release(OWNER, values={"webhook": {"port": 1}})
    other = Release(Owner("x", "y"), values={"webhook": {"port": 1}})
    snapshot = Snapshot(workloads=(go,), releases=(release, other))

    from_release = [each.text for each in chart_values(snapshot)]
    from_file = [each.text for each in chart_values(Snapshot(workloads=(go,), releases=(release,), values={}))]

    assert from_release[0].startswith("Helm release external-secrets/eso: 1 chart value")
    assert len(from_release) == 2
    assert from_file == ["--values: 0 chart values with the same meaning"]


def test_every_flag_of_the_table_is_one_of_the_operator() -> None:
    named = {row.flag for row in VALUES.values() if row.flag}

    assert {flag for flag in named if examine(flag, None).verdict is Verdict.UNKNOWN} == set()
    assert all(row.text for row in VALUES.values() if row.effect.name != "SAME")
