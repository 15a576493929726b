"""Two versions of CRDs, operator and provider, as processes around one API server of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_testkit.operator.operators import BACKEND, MAKER, SERVICE, Bench
from eso_testkit.operator.storingprovider import StoringProvider
from eso_wire import codec, paths
from eso_wire._generated import provider_pb2 as pb
from eso_wire.values import CleanupOutcome, Generated
from eso_wire.versions import CURRENT
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kubebase.testing.servers import ApiServer, Child, free_ports
from kubebase.testing.waiting import eventually
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.localserver import LocalServer
from kuberun.testing.rawapi import RawApi, raw_api

ROOT = Path(__file__).resolve().parents[2]
PREVIOUS = "4c72f4d88f8dd291519da8bfdfc8ccdd4e593dc9"
"""The last commit whose operator and providers speak protocol 2.0 and 2.1, and not 2.2."""
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
NAMESPACE = "external-secrets"
ESTABLISHED = ("Established", "True")


@dataclass(frozen=True, slots=True)
class Release:
    """One version. `sources` are folders in front of the installed packages; this version needs none."""

    name: str
    crds: Path
    protocol: str
    """The newest version of the protocol that it speaks."""
    sources: tuple[Path, ...] = ()

    def python(self, *arguments: str) -> tuple[str, ...]:
        """Return a command that runs this version."""
        path = ":".join(map(str, self.sources))
        return ("env", *([f"PYTHONPATH={path}"] if path else []), sys.executable, *arguments)

    @property
    def fake_provider(self) -> tuple[str, ...]:
        return self.python("-c", "from eso_provider_fake.main import main; main()")

    def definitions(self) -> list[JsonObject]:
        return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in sorted(self.crds.glob("*.yaml"))]


@pytest.fixture(scope="session")
def this() -> Release:
    return Release("this", ROOT / "deploy" / "crds", str(CURRENT))


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Release:
    command = ["git", "archive", PREVIOUS, "packages", "providers", "deploy/crds"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"this checkout has no history (commit {PREVIOUS[:8]}): it is a shallow clone or an archive")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    sources = (*sorted(folder.glob("packages/*/src")), *sorted(folder.glob("providers/*/src")))
    return Release("previous", folder / "deploy" / "crds", "2.1", sources)


@dataclass(slots=True)
class Lasting(StoringProvider):
    """A backend that outlives operators: pushed values, and generated ones until they are cleaned up."""

    numbers: dict[str, int] = field(default_factory=dict)
    books: set[int] = field(default_factory=set)

    def _respond(self, method: str, request: bytes) -> Message:
        match paths.short_name(method):
            case "Generate":
                _, wanted = codec.from_generate_request(pb.GenerateRequest.FromString(request))
                number = self.numbers.setdefault(wanted.idempotency_key, len(self.numbers) + 1)
                self.books.add(number)
                state = SecretBytes(msgspec.json.encode({"number": number}))
                return codec.to_generate_response(Generated({"password": SecretBytes(b"%d" % number)}, state))
            case "Cleanup":
                _, asked = codec.from_cleanup_request(pb.CleanupRequest.FromString(request))
                self.books.discard(msgspec.json.decode(asked.state.reveal())["number"])
                return codec.to_cleanup_response(CleanupOutcome.CLEANED)
        # Zero-argument super does not find its class here: a dataclass with slots is made twice.
        return StoringProvider._respond(self, method, request)


@dataclass(slots=True)
class Cluster:
    """An API server, and the processes of either version."""

    bench: Bench
    folder: Path
    provider: Lasting = field(default_factory=lambda: Lasting(SystemClock()))
    runs: int = 0

    async def install(self, release: Release) -> None:
        """Create or replace the CRDs of a version; those that it does not have stay."""
        kits = [kind.crd() for kind in (BACKEND, MAKER)]
        for definition in (*release.definitions(), *kits):
            path = CRDS.path("", definition["metadata"]["name"])
            found = await self.bench.api.get(path)
            if found.status == 200:
                version = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
                definition["metadata"] = {**definition["metadata"], **version}
                answer = await self.bench.api.put(path, definition)
            else:
                answer = await self.bench.api.post(CRDS.path(""), definition)
            assert answer.status in (200, 201), answer.body
        await eventually(self._established, "the CRDs are not served")

    async def _established(self) -> bool:
        listed = await self.bench.api.get(CRDS.path(""))
        conditions = [(crd.get("status") or {}).get("conditions") or () for crd in listed.body["items"]]
        return all(any((each["type"], each["status"]) == ESTABLISHED for each in found) for found in conditions)

    @asynccontextmanager
    async def operator(self, release: Release, *flags: str) -> AsyncIterator[Path]:
        """Run the operator of a version; the result is its log."""
        self.runs += 1
        log = self.folder / f"operator-{self.runs}-{release.name}.log"
        bench, live = self.bench, free_ports(1)[0]
        place = f"{bench.namespace}/{SERVICE}"
        wiring = (
            *("--kubeconfig", str(bench.kubeconfig), "--core-namespace", bench.namespace, "--concurrent", "4"),
            *("--live-addr", f"127.0.0.1:{live}", "--metrics-addr", "127.0.0.1:0", "--enable-leader-election"),
            *("--trusted-provider", f"{place}=127.0.0.1:{bench.port}"),
        )
        child = await asyncio.to_thread(Child, release.python("-m", "eso_operator", *wiring, *flags), log)
        try:
            yield log
        finally:
            await asyncio.to_thread(child.stop)


@pytest.fixture
def own_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A server for one test alone: it replaces CRDs, and its operators serve the whole cluster."""
    folder = tmp_path_factory.mktemp("upgrade-apiserver")
    kube = request.config.getoption("--apiserver") == "kube"
    server: ApiServer = KubeApiserver(folder, find_assets()) if kube else LocalServer(folder)
    yield server
    server.stop()


@pytest.fixture
async def own_api(own_server: ApiServer) -> AsyncIterator[RawApi]:
    async with raw_api(own_server.url, own_server.token, str(own_server.ca_file)) as client:
        yield client


@pytest.fixture
async def cluster(own_server: ApiServer, own_api: RawApi, tmp_path: Path) -> AsyncIterator[Any]:
    answer = await own_api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert answer.status == 201, answer.body
    bench = Bench(own_api, own_server.kubeconfig, NAMESPACE, free_ports(1)[0])
    yield Cluster(bench, tmp_path)
    if bench.host is not None:
        await bench.host.stop()
