"""Malformed requests of any kind are refused in words; none of them is a defect, and none of them does harm.

A seed draws requests from a table and garbles each by one to three mutations (`localkube.testing.requests`). They are
carried out for real, one after the other: what gets through is met by those that come later. Beside them lie objects
that no request is aimed at; whatever happens, they stay as they are, and a server that starts again on the same data
serves them too.

    ESO_MALFORMED_SEEDS=500 pytest libs/localkube/tests/test_malformed_requests.py
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import structlog
import yaml

from kuberun.testing.rawapi import RawApi, Reply, raw_api
from localkube.server import LocalKube
from localkube.testing.requests import CONFIG_MAP, DEFINITION, DEFINITIONS, RBAC, ROLE, SECRET, TOY, malformed
from localkube.testing.verbs import Verbs

SEEDS = int(os.environ.get("ESO_MALFORMED_SEEDS", "4"))
REQUESTS: Final = 300
"""For each seed."""


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_malformed_requests_are_refused_in_words_and_do_no_harm(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(tmp_path) as (kube, admin):
            await keep_something(admin)
            kept = await kept_objects(kube, admin)

            for sent in islice(malformed(seed), REQUESTS):
                reply = await admin.send(sent.method, sent.path, sent.body, query=sent.query, headers=sent.headers)
                assert is_answer(reply), f"{sent}\n{reply.status} {reply.body}\n{logs}"
                assert not defects(logs), f"{sent}\n{defects(logs)}"

            await Verbs(kube.cluster).until_idle()
            assert await kept_objects(kube, admin) == kept
            await read_everything(kube, admin)
        async with serving(tmp_path) as (kube, admin):
            assert await kept_objects(kube, admin) == kept

    assert not defects(logs)
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]


def is_answer(reply: Reply) -> bool:
    """Done, or a Status that says why not.

    A real server answers a few requests with 500 and no reason, a version that it does not have yet with 504, and the
    path of a group that is not served with a page of text. So does this one.
    """
    if reply.status < 400 or (reply.status, reply.body) == (404, "404 page not found\n"):
        return True
    body = reply.body
    refused = reply.status < 500 or (reply.status, body.get("reason", "")) in {(500, ""), (504, "Timeout")}
    return refused and body["kind"] == "Status" and body["code"] == reply.status and bool(body["message"])


def defects(logs: Any) -> list[Any]:
    return [entry for entry in logs if entry["log_level"] in {"error", "critical"}]


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[tuple[LocalKube, RawApi]]:
    authority = data / "trusted.crt"
    async with LocalKube(data / "data") as kube:
        authority.write_bytes(kube.certificates.authority_pem)
        token: str = yaml.safe_load(kube.kubeconfig_text)["users"][0]["user"]["token"]
        async with raw_api(kube.url, token, str(authority)) as admin:
            yield kube, admin


async def keep_something(admin: RawApi) -> None:
    mark = {"name": "kept", "labels": {"kept": "yes"}}
    names = {"plural": "keepsakes", "kind": "Keepsake"}
    spec = DEFINITION["spec"] | {"names": names}
    replies = [
        await admin.post("/api/v1/namespaces", {"metadata": mark}),
        await admin.post("/api/v1/namespaces", {"metadata": {"name": "played"}}),
        await admin.post("/api/v1/namespaces/kept/secrets", SECRET | {"metadata": mark}),
        await admin.post("/api/v1/namespaces/kept/configmaps", CONFIG_MAP | {"metadata": mark}),
        await admin.post(f"{RBAC}/clusterroles", ROLE | {"metadata": mark}),
        await admin.post(
            DEFINITIONS, DEFINITION | {"metadata": mark | {"name": "keepsakes.example.com"}, "spec": spec}
        ),
        await admin.post(DEFINITIONS, DEFINITION),
    ]
    toy = TOY | {"kind": "Keepsake", "metadata": mark}
    replies.append(await admin.post("/apis/example.com/v1/namespaces/kept/keepsakes", toy))
    assert [reply.status for reply in replies] == [201] * len(replies)


async def kept_objects(kube: LocalKube, admin: RawApi) -> list[Any]:
    await Verbs(kube.cluster).until_idle()
    return [item for path in lists(kube) for item in (await listed(admin, path)) if is_kept(item)]


def is_kept(obj: Any) -> bool:
    return (obj["metadata"].get("labels") or {}).get("kept") == "yes"


def lists(kube: LocalKube) -> list[str]:
    kinds = [kind for kind in kube.cluster.catalog if "list" in kind.verbs]
    return [
        f"{'/apis/' if kind.resource.group else '/api/'}{kind.resource.api_version}/{kind.resource.plural}"
        for kind in kinds
    ]


async def listed(admin: RawApi, path: str) -> list[Any]:
    reply = await admin.get(path)
    assert reply.status == 200, f"{path} {reply.body}"
    return list(reply.body["items"])


async def read_everything(kube: LocalKube, admin: RawApi) -> None:
    """Every object that got in is one that can be read, shown and written again."""
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for path in lists(kube):
        assert (await admin.get(path, accept=table)).status == 200, path
        for item in await listed(admin, path):
            place = address(path, item["metadata"])
            one = await admin.get(place)
            again = await admin.put(place, one.body, dryRun="All")
            assert (one.status, one.body["metadata"]) == (200, item["metadata"]), place
            assert is_answer(again), f"{place} {again.body}"


def address(path: str, metadata: Any) -> str:
    """Where one object of a list is."""
    start, _, plural = path.rpartition("/")
    namespace = metadata.get("namespace")
    place = f"{start}/namespaces/{namespace}/{plural}" if namespace else path
    return f"{place}/{quote(metadata['name'])}"
