"""An operator for one namespace, as the chart's service account: it does its work there, and reads nothing else.

It has the rights that the chart grants with `scopedRBAC`: in the namespace that it serves, and in its own.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest
import yaml
from structlog.testing import capture_logs

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.flags import parse
from eso_operator.settings import ProviderSettings, Settings
from eso_operator.stores.resolved import SERVICE as SERVICE_KIND
from eso_operator.stores.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, MetricsSettings
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import MAKER, SERVICE, Bench, free_port, install_crds
from eso_testkit.operator.storingprovider import StoringProvider, storing
from eso_testkit.operator.transports import Between
from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.servers import ApiServer
from kubebase.testing.waiting import eventually
from kuberun.errors import Forbidden
from kuberun.requests import Request
from kuberun.testing.builders import SECRETS
from kuberun.testing.rawapi import RawApi, raw_api

ACCOUNT = "external-secrets"
LEFT_OUT = "cluster-scoped kinds are left out: they may not be listed"
WITHOUT_A_FLAG = {"namespaces", "clusterproviderclasses", "clustergenerators"}
FANNED_OUT = {"clusterexternalsecrets", "clusterpushsecrets"}
EVERYTHING = WITHOUT_A_FLAG | FANNED_OUT | {"clustersecretstores", "clusterproviders"}
PLURALS = {"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}
EXTERNAL, PUSHES, STORES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource(), SECRET_STORE.resource()
FAKE = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}


class Home(Enum):
    """Where the operator lives, seen from the namespace that it serves."""

    THERE = auto()
    ELSEWHERE = auto()


class Chart(Protocol):
    def __call__(self, *, release: str, **values: Any) -> list[JsonObject]: ...


class Noted(Between):
    """A proxy in front of the API server that records requests and refusals."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.forbidden: Counter[str] = Counter()

    async def request(self, request: Request) -> bytes:
        self.paths[request.path] += 1
        try:
            return await self.inner.request(request)
        except Forbidden:
            self.forbidden[request.path] += 1
            raise

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.paths[request.path] += 1
        return self.inner.stream(request)

    def outside(self, *namespaces: str) -> set[str]:
        """Return the requests without a namespace or for another one, except discovery."""
        inside = tuple(f"/namespaces/{each}/" for each in namespaces)
        discovery = re.compile(r"/api/v1|/apis/[^/]+/[^/]+")
        kinds = {path for path in self.paths if not discovery.fullmatch(path)}
        return {path for path in kinds if not any(each in path for each in inside)}


@dataclass(frozen=True, slots=True)
class Site:
    """`tenant` is the namespace that is served, `home` where operator and provider live."""

    tenant: Bench
    home: Bench
    args: list[str]

    @property
    def settings(self) -> Settings:
        trusted = ((ServiceKey(self.home.namespace, SERVICE), f"127.0.0.1:{self.home.port}"),)
        return replace(
            parse(self.args, {}),
            live=Listener("127.0.0.1", 0),
            metrics=MetricsSettings(listen=Listener("127.0.0.1", 0)),
            providers=ProviderSettings(trusted=trusted),
        )

    async def syncs_and_pushes(self, provider: StoringProvider) -> None:
        """One of everything that people write, through a store of the namespace, and its end."""
        tenant = self.tenant
        await tenant.create(STORES, "store", spec=FAKE)
        await tenant.create(MAKER.resource(), "maker", spec={})
        await tenant.create(SECRETS, "source", data={"password": base64.b64encode(b"from the cluster").decode()})
        store = {"name": "store"}
        remote = {"secretKey": "value", "remoteRef": {"key": "greeting"}}
        await tenant.create(EXTERNAL, "synced", spec={"secretStoreRef": store, "data": [remote]})
        maker = {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}
        await tenant.create(EXTERNAL, "made", spec={"dataFrom": [{"sourceRef": {"generatorRef": maker}}]})
        match = {"match": {"secretKey": "password", "remoteRef": {"remoteKey": "pushed"}}}
        push = {"secretStoreRefs": [store], "selector": {"secret": {"name": "source"}}, "data": [match]}
        await tenant.create(PUSHES, "push", spec={**push, "deletionPolicy": "Delete"})

        for resource, name in ((EXTERNAL, "synced"), (EXTERNAL, "made"), (PUSHES, "push")):
            await tenant.ready(resource, name, lambda condition: condition.status == "True")
        target = await tenant.find(SECRETS, "synced")
        assert target is not None
        assert base64.b64decode(target["data"]["value"]) == b"hello"
        assert provider.values["pushed"] == b"from the cluster"
        states = await tenant.api.get(GENERATOR_STATE.resource().path(tenant.namespace))
        assert len(states.body["items"]) == 1

        await tenant.delete(PUSHES, "push")
        await eventually(lambda: self._gone("push"), "the PushSecret is still there")
        assert "pushed" not in provider.values
        await tenant.delete(EXTERNAL, "made")
        await eventually(self._cleaned_up, "the state of the generator is still there")

    async def _gone(self, name: str) -> bool:
        return await self.tenant.find(PUSHES, name) is None

    async def _cleaned_up(self) -> bool:
        states = await self.tenant.api.get(GENERATOR_STATE.resource().path(self.tenant.namespace))
        return not states.body["items"]


@pytest.fixture
async def other(api: RawApi) -> AsyncIterator[str]:
    """A second namespace."""
    name = f"test-{secrets.token_hex(5)}"
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@dataclass(frozen=True, slots=True)
class Installation:
    """The chart's account and its rights, on a server that has our kinds."""

    server: ApiServer
    api: RawApi
    chart: list[JsonObject]
    core: str

    @property
    def args(self) -> list[str]:
        (deployment,) = (each for each in self.chart if each["kind"] == "Deployment")
        return list(deployment["spec"]["template"]["spec"]["containers"][0]["args"])

    async def kubeconfig(self, folder: Path) -> Path:
        """With a token of the account, once its rights are in force."""
        for each in self.chart:
            if each["kind"] in PLURALS:
                root = "/api/v1" if each["apiVersion"] == "v1" else f"/apis/{each['apiVersion']}"
                path = f"{root}/namespaces/{each['metadata']['namespace']}/{PLURALS[each['kind']]}"
                assert (await self.api.post(path, each)).status == 201
        path = f"/api/v1/namespaces/{self.core}/serviceaccounts/{ACCOUNT}/token"
        token = (await self.api.post(path, {"spec": {"expirationSeconds": 3600}})).body["status"]["token"]
        async with raw_api(self.server.url, token, str(self.server.ca_file)) as limited:
            await eventually(lambda: self._may_read(limited), "the rights are not in force")
        config = yaml.safe_load(self.server.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = folder / "limited.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    async def _may_read(self, limited: RawApi) -> bool:
        bound = [each["metadata"]["namespace"] for each in self.chart if each["kind"] == "RoleBinding"]
        answers = [await limited.get(f"/api/v1/namespaces/{namespace}/services") for namespace in bound]
        return all(answer.status == 200 for answer in answers)


@pytest.fixture
async def installed(
    api_server: ApiServer, api: RawApi, namespace: str, other: str, operator_chart: Chart
) -> Callable[[Home], Installation]:
    await install_crds(api_server.kubeconfig)

    def at(home: Home) -> Installation:
        core = other if home is Home.ELSEWHERE else namespace
        chart = operator_chart(release=core, scopedNamespace=namespace, scopedRBAC=True)
        return Installation(api_server, api, chart, core)

    return at


async def is_ready(operator: Operator) -> bool:
    port = await operator.health.wait_listening()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status == 200


@pytest.mark.live
@pytest.mark.parametrize(
    ("home", "left_out"),
    [
        pytest.param(Home.ELSEWHERE, WITHOUT_A_FLAG, id="the chart's flags, in a namespace of its own"),
        pytest.param(Home.THERE, EVERYTHING, id="no flag but the namespace, in that very namespace"),
    ],
)
async def test_an_operator_with_rights_in_one_namespace_does_its_work_there_and_reads_nothing_else(
    installed: Callable[[Home], Installation],
    namespace: str,
    tmp_path: Path,
    home: Home,
    left_out: set[str],
) -> None:
    installation, port = installed(home), free_port()
    limited = await installation.kubeconfig(tmp_path)
    switches = "reconciler" if left_out is EVERYTHING else "nothing"
    args = [each for each in installation.args if switches not in each]
    tenant, own = (Bench(installation.api, limited, each, port) for each in (namespace, installation.core))
    site, noted = Site(tenant, own, args), Noted()
    provider = storing(state=b"{}", data={"greeting": b"hello"})

    with capture_logs() as lines:
        async with site.home.operator(site.settings, through=noted.over) as operator:
            await eventually(lambda: is_ready(operator), "never ready")
            host = await site.home.install(provider)
            try:
                await site.syncs_and_pushes(provider)
            finally:
                await host.stop()
            service = operator.watched.get(SERVICE_KIND, ObjectKey(installation.core, SERVICE))

    assert service is not None
    assert {path.rpartition("/")[2] for path in noted.outside(namespace, installation.core)} == left_out
    assert noted.forbidden == dict.fromkeys(noted.outside(namespace, installation.core), 1)
    (told,) = (line for line in lines if line["event"] == LEFT_OUT)
    assert {kind.partition(".")[0] for kind in told["kinds"]} == left_out
    assert {line["event"] for line in lines}.isdisjoint({"watch interrupted", "reconcile failed"})
