"""The operator's rights are enough for its work, and none of them is superfluous.

The first test runs the operator's own live tests in a process of their own: each operator there has the account and
the rights that the chart renders, and its requests are recorded. A verb that is missing fails one of those tests; a
verb that is granted and never used needs a row in `UNUSED`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_operator.flags import parse
from eso_operator.settings import ProviderSettings
from eso_operator.stores.resolved import ServiceKey
from eso_operator.telemetry.settings import Listener, MetricsSettings
from eso_testkit.operator.accounts import PLACEHOLDER, NeededRight, Noting, as_account
from eso_testkit.operator.operators import MAKER, SERVICE, Bench, free_port, install_crds
from eso_testkit.operator.storingprovider import storing
from eso_testkit.tools.dashboards import Site, served
from eso_tools.dashboard.settings import parse as parse_dashboard
from eso_tools.status.overview import OVERVIEW_KINDS
from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer
from kubebase.testing.waiting import eventually
from kuberun.testing.rawapi import RawApi

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT: Final = Path(__file__).resolve().parents[2]
KINDS: Final = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
OF_PEOPLE: Final = ("-view", "-edit", "-servicebindings")
REVIEWED: Final[JsonObject] = {"listen": {"secure": {"enabled": True}, "auth": {"enabled": True}}}
EVERYTHING: Final[JsonObject] = {
    "metrics": REVIEWED,
    "genericTargets": {"enabled": True},
}
TARGETS: Final = [
    {"apiGroup": "example.com", "resources": ["*"], "verbs": ["get", "list", "watch", "create", "update", "delete"]},
    {"apiGroup": "", "resources": ["serviceaccounts"], "verbs": ["create", "update"]},
]
"""Rights that people grant for targets of their own: those of the tests."""
SUITE: Final = (
    "providers/test_live_sent.py",
    "controllers/externalsecret/test_live_credentials.py",
    "controllers/externalsecret/test_live_lifecycle.py",
    "controllers/externalsecret/test_live_manifests.py",
    "controllers/externalsecret/test_live_references.py",
    "controllers/fanout/test_live_clusterpushsecret.py",
    "controllers/fanout/test_live_fanout_kinds.py",
    "controllers/providerclass/test_live_classes.py",
    "controllers/pushsecret/test_live_push.py",
    "controllers/secretstore/test_live_held_stores.py",
    "controllers/test_live_malformed.py",
    "telemetry/test_live_series.py",
    "tenants/test_live_neighbours.py",
)
BY_CHANCE: Final = {("", "events", "patch")}
"""Rights that a slow run of these tests uses, and a fast one does not."""
UNUSED: Final = {
    ("*", "*", "get"): "of a kind that may be listed: an object that changed, or does not fit its type, is read again",
    ("*.provider.external-secrets.io", "*", "*"): "configurations of providers that these tests do not have",
    (
        "",
        "configmaps",
        "delete",
    ): "a target of that kind goes with its values, as those of other kinds do in these tests",
    ("", "events", "patch"): "an event that is repeated is counted up after a while, which most of these tests outrun",
    ("", "namespaces", "patch"): "finalizers that the operator in Go left: only where it ran before",
    ("authentication.k8s.io", "tokenreviews", "create"): "who reads metrics",
    ("authorization.k8s.io", "subjectaccessreviews", "create"): "what that reader may see",
    ("discovery.k8s.io", "endpointslices", "list"): "how many pods a provider has: in these tests it is no pod",
    (
        "external-secrets.io",
        "*/finalizers",
        "update",
    ): "OwnerReferencesPermissionEnforcement, on OpenShift, asks for it",
    ("external-secrets.io", "clusterproviders", "patch"): "the finalizer of stores, as on the other kinds of stores",
    ("secretstore.external-secrets.io", "clustersecretstores", "patch"): "the same",
    ("external-secrets.io", "providerclasses", "create"): "an apply that creates needs it besides patch",
    ("generators.external-secrets.io", "generatorstates/status", "patch"): "the condition of one that does not fit",
}
"""Rights without a use in these tests, by patterns of group, resource and verb, each with its reason."""


class Chart(Protocol):
    def __call__(self, *, release: str = PLACEHOLDER, **values: Any) -> list[JsonObject]: ...


@dataclass(frozen=True, slots=True, order=True)
class Right:
    group: str
    resource: str
    verb: str

    def covers(self, other: Right) -> bool:
        """Return whether this right of a rule allows the other one, of a request."""
        above, _, below = self.resource.partition("/")
        every = above == "*" and (not below or other.resource.endswith(f"/{below}"))
        wanted = every or other.resource == self.resource
        return (self.group, self.verb) == (other.group, other.verb) and wanted

    def fits(self, pattern: tuple[str, str, str]) -> bool:
        return all(fnmatchcase(*pair) for pair in zip((self.group, self.resource, self.verb), pattern, strict=True))


@dataclass(frozen=True, slots=True)
class Record:
    """What the suite said, and the requests of its operators."""

    said: str
    passed: bool
    used: frozenset[Right]
    refused: frozenset[Right]


def rights_of(objects: Iterable[JsonObject]) -> list[JsonObject]:
    return [each for each in objects if each["kind"] in KINDS and not each["metadata"]["name"].endswith(OF_PEOPLE)]


def granted(objects: Iterable[JsonObject]) -> set[Right]:
    return {
        Right(group, resource, verb)
        for each in objects
        for rule in each.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def recorded(objects: list[JsonObject], server: str, folder: Path) -> Record:
    rights, requests = folder / "rights.yaml", folder / "requests.jsonl"
    rights.write_text(yaml.safe_dump_all(objects))
    files = [str(ROOT / "packages" / "eso-operator" / "tests" / name) for name in SUITE]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "live", f"--apiserver={server}", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "ESO_TEST_RIGHTS": str(rights), "ESO_TEST_REQUESTS": str(requests)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [json.loads(line) for line in requests.read_text().splitlines()]
    return Record(
        done.stdout[-5000:],
        done.returncode == 0,
        frozenset(Right(*line[:3]) for line in lines if line[3] != 403),
        frozenset(Right(*line[:3]) for line in lines if line[3] == 403),
    )


@pytest.mark.timeout(900)
@pytest.mark.cluster
def test_the_rights_are_enough_for_the_operators_own_tests_and_an_unused_one_has_a_reason(
    request: pytest.FixtureRequest, operator_chart: Chart, tmp_path: Path
) -> None:
    theirs = {"genericTargets": {"enabled": True, "resources": TARGETS}, "fullnameOverride": PLACEHOLDER}
    objects = rights_of(operator_chart(release=PLACEHOLDER, **{**EVERYTHING, **theirs}))

    record = recorded(objects, str(request.config.getoption("--apiserver")), tmp_path)

    assert record.passed, record.said
    assert record.refused == frozenset()
    rights = granted(rights_of(operator_chart(release=PLACEHOLDER, **EVERYTHING)))
    unused = {right for right in rights if not any(right.covers(one) for one in record.used)}
    explained = {pattern: {right for right in unused if right.fits(pattern)} for pattern in UNUSED}
    assert sorted(unused.difference(*explained.values())) == []
    assert [pattern for pattern, found in explained.items() if not found and pattern not in BY_CHANCE] == []
    listed = {(right.group, right.resource) for right in rights if right.verb == "list"}
    assert {(right.group, right.resource) for right in explained["*", "*", "get"]} <= listed


OFF: Final = (
    *("processClusterStore", "processClusterExternalSecret", "processClusterPushSecret", "processPushSecret"),
    *("processSecretStore", "processClusterGenerator"),
)
GENERATORS: Final = NeededRight("generators.external-secrets.io", "clustergenerators", "list")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with our kinds, and a namespace of its own."""

    server: ApiServer
    api: RawApi
    namespace: str

    async def bench(self, objects: list[JsonObject]) -> Bench:
        limited = await as_account(self.api, self.server.kubeconfig, self.namespace, rights_of(objects))
        return Bench(self.api, limited, self.namespace, free_port())


@pytest.fixture
async def cluster(api_server: ApiServer, api: RawApi, namespace: str) -> Cluster:
    await install_crds(api_server.kubeconfig)
    return Cluster(api_server, api, namespace)


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        # There is no flag for ClusterGenerators: the operator asks once, and leaves them out.
        pytest.param(dict.fromkeys(OFF, False), {GENERATORS}, id="every reconciler that can be switched off is off"),
        pytest.param({"rbac": {"serviceAccountTokenCreate": False}}, set(), id="no tokens of service accounts"),
        pytest.param({"namespaceFinalizers": False}, set(), id="no finalizers of namespaces"),
        pytest.param({"leaderElectionID": "another"}, set(), id="another lease"),
        pytest.param({"shards": 2}, set(), id="leases of shards and members"),
    ],
)
async def test_the_rest_works_with_fewer_rights(
    cluster: Cluster, operator_chart: Chart, tmp_path: Path, values: JsonObject, refused: set[NeededRight]
) -> None:
    objects = operator_chart(release=cluster.namespace, fullnameOverride=cluster.namespace, **values)
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    bench, noted = await cluster.bench(objects), Noting(tmp_path / "requests.jsonl")
    settings = replace(
        parse(deployment["spec"]["template"]["spec"]["containers"][0]["args"], {}),
        live=Listener("127.0.0.1", 0),
        metrics=MetricsSettings(listen=Listener("127.0.0.1", 0)),
        providers=ProviderSettings(trusted=((ServiceKey(bench.namespace, SERVICE), f"127.0.0.1:{bench.port}"),)),
    )

    async with bench.operator(settings, through=noted.over):
        host = await bench.install(storing(data={"greeting": b"hello"}))
        await bench.create(MAKER.resource(), "maker", spec={})
        maker = {"apiVersion": MAKER.resource().api_version, "kind": "Maker", "name": "maker"}
        spec = {"dataFrom": [{"sourceRef": {"generatorRef": maker}}]}
        await bench.create(EXTERNAL_SECRET.resource(), "made", spec=spec)
        await bench.ready(EXTERNAL_SECRET.resource(), "made", lambda condition: condition.status == "True")
        await host.stop()

    assert {asked for asked, status in noted.seen if status == 403} == refused


def deployment_of(objects: list[JsonObject], name: str) -> JsonObject:
    (found,) = (each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"].endswith(name))
    return found


async def test_the_dashboard_works_with_its_own_rights_uses_each_of_them_and_reads_no_secret(
    cluster: Cluster, operator_chart: Chart
) -> None:
    values: JsonObject = {"fullnameOverride": cluster.namespace, "dashboard": {"enabled": True}}
    objects = operator_chart(release=cluster.namespace, **values)
    own = [each for each in rights_of(objects) if "-dashboard" in each["metadata"]["name"]]
    limited = await as_account(
        cluster.api, cluster.server.kubeconfig, cluster.namespace, own, until=[f"{EXTERNAL_SECRET.resource().path('')}"]
    )
    (container,) = deployment_of(objects, "-dashboard")["spec"]["template"]["spec"]["containers"]
    settings = replace(parse_dashboard(container["args"]), listen=Listener("127.0.0.1", 0))
    rights = granted(own)
    bench = Bench(cluster.api, cluster.server.kubeconfig, cluster.namespace, free_port())
    entries = [{"secretKey": "pw", "remoteRef": {"key": "db"}}]
    await bench.create(EXTERNAL_SECRET.resource(), "db", spec={"secretStoreRef": {"name": "vault"}, "data": entries})

    async with served(settings, limited) as url:
        site = Site(bench, url)
        token: JsonObject = {"headers": {"Authorization": f"Bearer {cluster.server.token}"}}

        async def shown() -> bool:
            page = await site.get("/objects", **token)
            return ">db</b>" in page.text and "Not shown" not in page.text and "still being read" not in page.text

        await eventually(shown, "the dashboard does not show every kind")
        page = await site.get(site.object_path("db"), **token)

    assert (page.status, "SecretStore vault" in page.text, "Leases" in page.text) == (200, True, False)
    assert {right.verb for right in rights} == {"list", "watch", "create"}
    assert {right.resource for right in rights if right.verb == "create"} == {"tokenreviews", "subjectaccessreviews"}
    shown_kinds = {(custom.group, custom.plural) for custom in OVERVIEW_KINDS}
    listed = {(right.group, right.resource) for right in rights if right.verb == "list"}
    assert listed == {*shown_kinds, ("coordination.k8s.io", "leases")}
    assert {(right.group, right.resource) for right in rights if right.verb == "watch"} == shown_kinds


def test_the_operator_has_no_right_for_the_sake_of_the_dashboard(operator_chart: Chart) -> None:
    def of_operator(objects: list[JsonObject]) -> list[JsonObject]:
        return [each for each in rights_of(objects) if "-dashboard" not in each["metadata"]["name"]]

    assert of_operator(operator_chart(dashboard={"enabled": True})) == of_operator(operator_chart())
