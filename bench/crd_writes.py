"""What a write of our kinds costs the API server, compared with the same write on the CRDs of the Go operator.

Both CRDs are served side by side by one kube-apiserver, each under a group of its own. In alternating rounds, a bare
client creates objects, updates their spec and patches their status. The CPU time of the kube-apiserver counts.

The CRDs of the Go operator come from the Go module proxy. ESO_CRD_WRITES=parts compares our CRDs with copies of them
that lack one rule or one feature each, instead of with the Go operator's: it shows what each costs.
ESO_CRD_WRITES_KINDS names the samples to measure, ESO_CRD_WRITES_ROUNDS the number of rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from report import Row, ratio, shown

from eso_api.crd import CustomKind
from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from kubebase.meta import JsonObject
from kubebase.testing.servers import ServerFailedError
from kubebase.yamlvalues import read_one
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets

GO_MODULE = "github.com/external-secrets/external-secrets@v1.3.2"
"""The newest release that the module proxy has: the paths of later ones do not end in their major version."""
GO_SECONDS = 300
AT_MOST = 1.05
ROUNDS = int(os.environ.get("ESO_CRD_WRITES_ROUNDS", "31"))
PARTS = os.environ.get("ESO_CRD_WRITES") == "parts"
OBJECTS = 100
PARALLEL = 4
SECONDS = 60.0
CALM = 0.1
"""Share of one CPU that a kube-apiserver without requests may use before the first round."""
GO = "Go operator's CRD"
GO_SERVED = "the same, with every version served"
WRITES = ("create", "update", "status")
NAMESPACE = "default"
TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Sample:
    """Objects of one kind, with fields that the CRDs of both operators have."""

    name: str
    kind: CustomKind[Any]
    spec: JsonObject
    changed: JsonObject
    """Fields of the spec that an update changes."""
    status: JsonObject


@dataclass(frozen=True, slots=True)
class Variant:
    """One CRD that is measured."""

    name: str
    crd: JsonObject


Cpu = dict[tuple[str, str], list[float]]
"""The CPU seconds of each round, by variant and write."""


def measure() -> list[Row]:
    chosen = os.environ.get("ESO_CRD_WRITES_KINDS", "")
    samples = [sample for sample in SAMPLES if not chosen or sample.name in chosen.split(",")]
    try:
        assets = find_assets()
        folder = None if PARTS else go_crds()
    except (ServerFailedError, NotAvailableError) as missing:
        return [shown("skipped", str(missing))]
    rows: list[Row] = []
    for sample in samples:
        ours = Variant("ours", sample.kind.crd())
        if folder is None:
            rows += _parts(sample, _measured(assets, sample, [ours, *_without_each_part(ours.crd)]))
        else:
            theirs = _read_crd(folder, sample.kind)
            variants = [ours, Variant(GO, theirs)]
            if any(not version["served"] for version in theirs["spec"]["versions"]):
                variants.append(Variant(GO_SERVED, _all_served(theirs)))
            rows += _compared(sample, _measured(assets, sample, variants))
    return rows


def _compared(sample: Sample, cpu: Cpu) -> list[Row]:
    return [
        ratio(
            f"{sample.name}, {write}: CPU of the kube-apiserver / {other} ({_micros(cpu[other, write])})",
            _median_ratio(cpu["ours", write], cpu[other, write]),
            at_most=AT_MOST,
        )
        for other in dict.fromkeys(name for name, _ in cpu if name != "ours")
        for write in WRITES
    ]


def _parts(sample: Sample, cpu: Cpu) -> list[Row]:
    """Return how much of the CPU time of each write a part takes, in percent."""
    rows = []
    for name in dict.fromkeys(name for name, _ in cpu if name != "ours"):
        shares = [(1 - _median_ratio(cpu[name, write], cpu["ours", write])) * 100 for write in WRITES]
        rows.append(shown(f"{sample.name}: {name}", " ".join(f"{share:+6.1f}%" for share in shares)))
    return [shown(f"{sample.name}: share of a part", " ".join(f"{write:>7}" for write in WRITES)), *rows]


def _median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def _micros(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) / OBJECTS * 1e6:.0f} us"


# --- the CRDs ---------------------------------------------------------------------------------------------------------


class NotAvailableError(Exception):
    """The CRDs of the Go operator cannot be downloaded. The message says why."""


def go_crds() -> Path:
    """Return the folder with the CRDs of the Go operator, in the module cache."""
    go = shutil.which("go")
    if go is None:
        raise NotAvailableError("no Go toolchain on PATH, which downloads the CRDs of the Go operator")
    command = [go, "mod", "download", "-json", GO_MODULE]
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(command, cwd=empty, capture_output=True, timeout=GO_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise NotAvailableError(f"{GO_MODULE} was not downloaded within {GO_SECONDS} s") from None
    if done.returncode != 0:
        raise NotAvailableError(f"{GO_MODULE} cannot be downloaded; `{' '.join(command)}` says why")
    return Path(json.loads(done.stdout)["Dir"]) / "config" / "crds" / "bases"


def _read_crd(folder: Path, kind: CustomKind[Any]) -> JsonObject:
    crd: JsonObject = read_one((folder / f"{kind.group}_{kind.plural}.yaml").read_bytes())
    return crd


def _all_served(crd: JsonObject) -> JsonObject:
    return _with_versions(crd, [{**version, "served": True} for version in crd["spec"]["versions"]])


def _renamed(crd: JsonObject, group: str) -> JsonObject:
    """Return a copy of a CRD in another group, so that several can be served side by side."""
    spec = {**crd["spec"], "group": group}
    spec["names"] = {key: value for key, value in spec["names"].items() if key not in ("shortNames", "categories")}
    return {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": f"{spec['names']['plural']}.{group}"},
        "spec": spec,
    }


def _without_each_part(crd: JsonObject) -> Iterator[Variant]:
    yield Variant("nothing (noise)", crd)
    yield Variant("all rules", _edited(crd, _drop("x-kubernetes-validations")))
    for number, (place, rule) in enumerate(_rules(_stored(crd))):
        without = _copied(crd)
        for version in without["spec"]["versions"]:
            found = list(_rules(version))[number][0]
            found.owner["x-kubernetes-validations"].remove(rule)
        yield Variant(f"{place.path}: {rule.get('message', rule['rule']):.60}", without)
    for keyword in ("pattern", "enum", "format", "description", "anyOf", "minProperties", "maxProperties"):
        yield Variant(f"every {keyword}", _edited(crd, _drop(keyword)))
    # Without a maxLength the server refuses the rules: compare with "all rules".
    bare = _edited(crd, _drop("x-kubernetes-validations"))
    yield Variant("all rules and every maxLength", _edited(bare, _drop("maxLength")))
    for feature in ("additionalPrinterColumns", "selectableFields"):
        yield Variant(feature, _without_feature(crd, feature))
    yield Variant("versions that are not stored", _with_versions(crd, [_stored(crd)]))
    yield Variant("schema of the status", _without_status_schema(crd))


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    owner: JsonObject


def _rules(version: JsonObject) -> Iterator[tuple[Place, JsonObject]]:
    for path, node in _nodes(version["schema"]["openAPIV3Schema"], ""):
        for rule in node.get("x-kubernetes-validations", ()):
            yield Place(path, node), rule


def _nodes(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    yield path, schema
    for name, nested in schema.get("properties", {}).items():
        yield from _nodes(nested, f"{path}.{name}".removeprefix("."))
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], path + suffix)


def _drop(keyword: str) -> Callable[[JsonObject], object]:
    return lambda node: node.pop(keyword, None)


def _edited(crd: JsonObject, edit: Callable[[JsonObject], object]) -> JsonObject:
    edited = _copied(crd)
    for version in edited["spec"]["versions"]:
        for _, node in list(_nodes(version["schema"]["openAPIV3Schema"], "")):
            edit(node)
    return edited


def _without_feature(crd: JsonObject, feature: str) -> JsonObject:
    versions = crd["spec"]["versions"]
    return _with_versions(crd, [{key: value for key, value in each.items() if key != feature} for each in versions])


def _without_status_schema(crd: JsonObject) -> JsonObject:
    edited = _copied(crd)
    for version in edited["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        properties["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return edited


def _copied(crd: JsonObject) -> JsonObject:
    """Return a copy whose versions share no parts."""
    copied: JsonObject = msgspec.json.decode(msgspec.json.encode(crd))
    return copied


def _with_versions(crd: JsonObject, versions: list[JsonObject]) -> JsonObject:
    return {**crd, "spec": {**crd["spec"], "versions": versions}}


def _stored(crd: JsonObject) -> JsonObject:
    return next(version for version in crd["spec"]["versions"] if version["storage"])


# --- the writes -------------------------------------------------------------------------------------------------------


def _measured(assets: Path, sample: Sample, variants: Sequence[Variant]) -> Cpu:
    with tempfile.TemporaryDirectory() as folder:
        server = KubeApiserver(Path(folder), assets, controllers="")
        try:
            return asyncio.run(_rounds(server, sample, variants))
        finally:
            server.stop()


async def _rounds(server: KubeApiserver, sample: Sample, variants: Sequence[Variant]) -> Cpu:
    tls = ssl.create_default_context(cafile=str(server.ca_file))
    connector = aiohttp.TCPConnector(ssl=tls, limit=PARALLEL)
    headers = {"Authorization": f"Bearer {server.token}"}
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(server.url, connector=connector, headers=headers, timeout=timeout) as session:
        writers = [
            Writer(session, server.pid, sample, variant.name, _renamed(variant.crd, f"v{number}.bench.example"))
            for number, variant in enumerate(variants)
        ]
        for writer in writers:
            await writer.install()
        await _calm(server.pid)
        cpu: Cpu = {}
        for number in range(-1, ROUNDS):  # the first one only warms up
            turn = number % len(writers)
            measured = [(writer.name, await writer.round(number)) for writer in [*writers[turn:], *writers[:turn]]]
            for name, spent in measured if number >= 0 else ():
                for write, seconds in spent.items():
                    cpu.setdefault((name, write), []).append(seconds)
        return cpu


async def _calm(pid: int) -> None:
    """Wait until the kube-apiserver has built the OpenAPI documents of the new CRDs."""
    deadline = time.monotonic() + SECONDS
    busy = 1.0
    while busy > CALM and time.monotonic() < deadline:
        before = cpu_seconds(pid)
        await asyncio.sleep(1.0)
        busy = cpu_seconds(pid) - before


class Writer:
    """Writes objects of one CRD."""

    def __init__(self, session: aiohttp.ClientSession, pid: int, sample: Sample, name: str, crd: JsonObject) -> None:
        self.name = name
        self._session = session
        self._pid = pid
        self._sample = sample
        self._crd = crd
        spec = crd["spec"]
        self._api_version = f"{spec['group']}/{sample.kind.versions[0]}"
        scope = f"namespaces/{NAMESPACE}/" if spec["scope"] == "Namespaced" else ""
        self._path = f"/apis/{self._api_version}/{scope}{spec['names']['plural']}"

    async def install(self) -> None:
        await self._send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", self._crd)
        deadline = time.monotonic() + SECONDS
        while not await self._is_served():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._path} is not served")
            await asyncio.sleep(0.1)
        # A field that one CRD does not have would make its writes cheaper.
        probe = self._object("probe", self._sample.spec | self._sample.changed)
        await self._send("POST", f"{self._path}?fieldValidation=Strict&dryRun=All", probe)

    async def round(self, number: int) -> dict[str, float]:
        """Return the CPU seconds of the kube-apiserver for each kind of write."""
        names = [f"round-{number + 1}-{each}" for each in range(OBJECTS)]
        spent = {
            "create": await self._cpu(self._create, names),
            "update": await self._cpu(self._update, names),
            "status": await self._cpu(self._patch_status, names),
        }
        await self._send("DELETE", self._path, {})
        return spent

    async def _cpu(self, write: Callable[[str], Awaitable[object]], names: list[str]) -> float:
        pending = iter(names)

        async def worker() -> None:
            for name in pending:
                await write(name)

        before = cpu_seconds(self._pid)
        async with asyncio.TaskGroup() as group:
            for _ in range(PARALLEL):
                group.create_task(worker())
        return cpu_seconds(self._pid) - before

    async def _create(self, name: str) -> None:
        await self._send("POST", self._path, self._object(name, self._sample.spec))

    async def _update(self, name: str) -> None:
        """Replace the spec by a merge patch, as `kubectl apply` does."""
        await self._send("PATCH", f"{self._path}/{name}", {"spec": self._sample.changed})

    async def _patch_status(self, name: str) -> None:
        await self._send("PATCH", f"{self._path}/{name}/status", {"status": self._sample.status})

    def _object(self, name: str, spec: JsonObject) -> JsonObject:
        kind = self._crd["spec"]["names"]["kind"]
        return {"apiVersion": self._api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}

    async def _is_served(self) -> bool:
        async with self._session.get(self._path) as response:
            return response.status == 200

    async def _send(self, method: str, path: str, body: JsonObject) -> None:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        content = {"Content-Type": f"application/{kind}"}
        async with self._session.request(method, path, data=msgspec.json.encode(body), headers=content) as response:
            answer = await response.read()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path} of {self.name}: {response.status} {answer.decode()[:1000]}")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process by its clock, in nanoseconds; /proc counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)


# --- the samples ------------------------------------------------------------------------------------------------------


def _ready(reason: str, message: str) -> JsonObject:
    condition = {"type": "Ready", "status": "True", "reason": reason, "message": message, "lastTransitionTime": TIME}
    return {"conditions": [condition]}


def _secret_key(name: str, key: str) -> JsonObject:
    return {"name": name, "key": key}


_SYNCED = {
    **_ready("SecretSynced", "secret synced"),
    "refreshTime": TIME,
    "syncedResourceVersion": "1-0123456789abcdef0123456789abcdef0123456789abcdef01234567",
    "binding": {"name": "app"},
}
_KEYS = [{"secretKey": f"key-{n}", "remoteRef": {"key": f"remote-{n}", "property": "value"}} for n in range(3)]
_PUSHED = [
    {"match": {"secretKey": f"key-{n}", "remoteRef": {"remoteKey": f"app/{n}", "property": "value"}}} for n in range(3)
]
_STORE: JsonObject = {"kind": "ClusterSecretStore", "name": "store"}
_VAULT: JsonObject = {
    "server": "https://vault.example:8200",
    "path": "secret",
    "version": "v2",
    "auth": {"kubernetes": {"mountPath": "kubernetes", "role": "app", "serviceAccountRef": {"name": "app"}}},
}
_AWS: JsonObject = {
    "service": "SecretsManager",
    "region": "eu-west-1",
    "auth": {
        "secretRef": {
            "accessKeyIDSecretRef": _secret_key("aws", "id"),
            "secretAccessKeySecretRef": _secret_key("aws", "secret"),
        }
    },
}
_VALID = {**_ready("Valid", "store validated"), "capabilities": "ReadWrite"}

SAMPLES = (
    Sample(
        "ExternalSecret",
        EXTERNAL_SECRET,
        {
            "secretStoreRef": _STORE,
            "refreshInterval": "1h",
            "target": {"name": "app", "creationPolicy": "Owner"},
            "data": _KEYS,
        },
        {"refreshInterval": "2h", "target": {"name": "app", "creationPolicy": "Owner", "deletionPolicy": "Retain"}},
        _SYNCED,
    ),
    Sample(
        "ExternalSecret with template",
        EXTERNAL_SECRET,
        {
            "secretStoreRef": _STORE,
            "refreshInterval": "1h",
            "target": {
                "name": "app",
                "deletionPolicy": "Delete",
                "template": {
                    "type": "Opaque",
                    "metadata": {"annotations": {"team": "blue"}},
                    "data": {"config": "password: {{ .password }}"},
                    "templateFrom": [{"target": "Data", "configMap": {"name": "t", "items": [{"key": "app.conf"}]}}],
                },
            },
            "dataFrom": [
                {
                    "extract": {"key": "app"},
                    "rewrite": [{"regexp": {"source": "^app-(.*)$", "target": "$1"}}],
                },
                {"sourceRef": {"generatorRef": {
                    "apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "Password", "name": "password"
                }}},
            ],
        },
        {"refreshInterval": "2h"},
        _SYNCED,
    ),
    Sample(
        "SecretStore of AWS",
        SECRET_STORE,
        {"provider": {"aws": _AWS}, "refreshInterval": 60},
        {"provider": {"aws": {**_AWS, "region": "eu-west-2"}}},
        _VALID,
    ),
    Sample(
        "ClusterSecretStore of Vault",
        CLUSTER_SECRET_STORE,
        {"provider": {"vault": _VAULT}, "conditions": [{"namespaces": ["blue", "green"]}]},
        {"provider": {"vault": {**_VAULT, "path": "other"}}},
        _VALID,
    ),
    Sample(
        "PushSecret",
        PUSH_SECRET,
        {
            "secretStoreRefs": [_STORE],
            "selector": {"secret": {"name": "source"}},
            "refreshInterval": "1h",
            "deletionPolicy": "Delete",
            "data": _PUSHED,
        },
        {"refreshInterval": "2h", "updatePolicy": "IfNotExists"},
        {
            **_ready("Synced", "PushSecret synced successfully"),
            "refreshTime": TIME,
            "syncedResourceVersion": _SYNCED["syncedResourceVersion"],
            "syncedPushSecrets": {"ClusterSecretStore/store": {f"app/{n}": each for n, each in enumerate(_PUSHED)}},
        },
    ),
)  # fmt: skip
