"""The CRDs of a provider come with that provider, belong to one release, and are never lost."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.kinds import GENERATOR_KINDS, KINDS, provider_kinds
from eso_api.stores.projectproviders import GENERATORS
from kubebase.meta import JsonObject
from kubebase.testing.servers import ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.live

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "charts"
GUIDE = CHARTS.parents[1] / "docs" / "guides" / "install.md"
UMBRELLA, PROVIDER = CHARTS / "external-secrets", CHARTS / "eso-provider"
NAMESPACE = RELEASE = "external-secrets"
TEAM = "team"
REGISTRY = "registry.example.com/eso"
IMAGE: JsonObject = {"image": {"registry": REGISTRY}}
OWN = {name: {kind.crd_name for kind in kinds} for name, kinds in provider_kinds().items()}
CORE = {kind.crd_name for kind in KINDS}
V1_GENERATORS = {kind.crd_name: GENERATORS[kind.name] for kind in GENERATOR_KINDS}
VAULTS = "vaults.provider.secretstore.external-secrets.io"
VAULT = """\
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata: {name: main}
spec:
  server: https://vault.example.com
  auth: {tokenSecretRef: {name: vault-token, key: token}}
"""


def enabled(*names: str, **more: Any) -> JsonObject:
    return {**IMAGE, "providers": {name: {"enabled": True} for name in names}, **more}


@pytest.fixture
def offline(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    binary = find_helm()
    if binary is None and request.config.getoption("--apiserver") != "kube":
        pytest.skip("no Helm in the cache: `make test-cluster` builds one (it needs Go once)")
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    return Helm(binary, tmp_path, namespace=NAMESPACE)


def crds_of(objects: list[JsonObject]) -> dict[str, JsonObject]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == "CustomResourceDefinition"}


@pytest.mark.parametrize("provider", sorted(OWN))
def test_a_cluster_with_one_provider_has_the_crds_of_the_core_and_of_that_provider(
    offline: Helm, provider: str
) -> None:
    default = crds_of(offline.template(RELEASE, UMBRELLA, **enabled(provider)))
    few = crds_of(offline.template(RELEASE, UMBRELLA, **enabled(provider, crds={"createAllGenerators": False})))

    unused = {name for name, of in V1_GENERATORS.items() if of != provider}
    assert set(default) == CORE | OWN[provider]
    assert set(few) == (CORE | OWN[provider]) - unused
    assert len(few) < 40
    assert {name for name, crd in default.items() if _provider_name(crd) == provider} == OWN[provider]
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in default.values()} == {"keep"}


def test_providers_that_share_a_process_and_named_ones_bring_their_crds(offline: Helm) -> None:
    shared = {"shared": {"enabled": True, "names": ["webhook", "generators"]}}

    found = crds_of(offline.template(RELEASE, UMBRELLA, **IMAGE, providers=shared, crds={"providers": ["vault"]}))

    assert set(found) == CORE | OWN["webhook"] | OWN["generators"] | OWN["vault"]


def test_a_provider_whose_crds_the_chart_lacks_is_refused_by_name(offline: Helm) -> None:
    said = offline.fails("template", "x", str(UMBRELLA), values={**IMAGE, "crds": {"providers": ["valt"]}})

    assert "crds.providers: this chart has no CRDs of a provider valt, only of akeyless, aws, " in said


@pytest.mark.parametrize("provider", sorted(OWN))
def test_the_chart_of_one_provider_has_its_crds_and_a_switch_for_them(offline: Helm, provider: str) -> None:
    values: JsonObject = {"name": provider, "image": {"registry": REGISTRY, "tag": "1.0.0"}}

    assert set(crds_of(offline.template("x", PROVIDER, **values))) == OWN[provider]
    assert not crds_of(offline.template("x", PROVIDER, **values, installCRDs=False))


def test_the_chart_of_a_provider_of_others_has_no_crds(offline: Helm) -> None:
    assert not crds_of(offline.template("x", PROVIDER, name="acme", image={"registry": REGISTRY, "tag": "1.0.0"}))


def _provider_name(crd: JsonObject) -> str:
    return str(crd["metadata"]["labels"].get("external-secrets.io/provider-name", ""))


# --- on a real kube-apiserver ----------------------------------------------------------------------------------------


class Cluster:
    """A cluster of its own, in which releases own CRDs."""

    def __init__(self, server: KubeApiserver, binary: Path, folder: Path) -> None:
        self.helm = Helm(binary, folder, kubeconfig=server.kubeconfig, namespace=NAMESPACE)
        self.teams = Helm(binary, folder, kubeconfig=server.kubeconfig, namespace=TEAM)
        self.kubectl = Kubectl(server, folder, namespace=NAMESPACE)
        self._environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(folder)}

    def guide(self, begin: str, words: dict[str, str]) -> str:
        """Run the block of the guide that begins so, with other words, as a person would; return the output."""
        (block,) = re.findall(rf"^```sh\n({re.escape(begin)}.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
        for word, instead in words.items():
            block = block.replace(word, instead)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        return done.stdout

    def umbrella(self, **values: Any) -> str:
        command = ("upgrade", "--install", "--create-namespace", RELEASE, str(UMBRELLA))
        return self.helm(*command, values={**IMAGE, **values})

    def provider(self, release: str, **values: Any) -> str:
        """Install or upgrade a provider as a release of its own, in the namespace of a team."""
        image = {"registry": REGISTRY, "tag": "1.0.0"}
        command = ("upgrade", "--install", "--create-namespace", release, str(PROVIDER))
        return self.teams(*command, values={"name": "vault", "image": image, **values})

    def store(self) -> None:
        """Write an object of a kind of the provider vault."""
        # The status does not exist at first, which `--for=condition=` takes for an error.
        for state in ("jsonpath={.status.acceptedNames.kind}=Vault", "condition=Established"):
            self.kubectl("wait", f"--for={state}", "--timeout=60s", f"crd/{VAULTS}")
        self.kubectl("apply", "-f", "-", stdin=VAULT)

    def stored(self) -> str:
        return str(self.kubectl.json("get", VAULTS, "main")["metadata"]["uid"])

    def crds(self) -> dict[str, JsonObject]:
        found = [each["metadata"] for each in self.kubectl.json("get", "crds")["items"]]
        return {
            each["name"]: each
            for each in found
            if each["name"].endswith("external-secrets.io") and "deletionTimestamp" not in each
        }

    def owners(self) -> dict[str, set[str]]:
        """The CRDs by the release that owns them."""
        owners: dict[str, set[str]] = {}
        for name, metadata in self.crds().items():
            owners.setdefault(metadata["annotations"]["meta.helm.sh/release-name"], set()).add(name)
        return owners

    def rendered(self, helm: Helm, release: str) -> set[str]:
        manifest = helm("get", "manifest", release)
        return set(crds_of([each for each in yaml.load_all(manifest, Loader=yaml.CSafeLoader) if each]))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.config.getoption("--apiserver") != "kube":
        pytest.skip("installs and deletes CRDs by Helm on a real kube-apiserver: run `make test-cluster`")
    helm = find_helm()
    if helm is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    folder = tmp_path / "server"
    folder.mkdir()
    try:
        server = KubeApiserver(folder, find_assets())
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    yield Cluster(server, helm, tmp_path)
    server.stop()


@pytest.mark.slow
def test_an_upgrade_from_all_crds_to_one_provider_loses_no_crd_and_no_object(cluster: Cluster) -> None:
    cluster.umbrella(crds={"providers": sorted(OWN)})
    cluster.store()
    store, everything = cluster.stored(), {name: crd["uid"] for name, crd in cluster.crds().items()}
    assert len(everything) == len(CORE) + sum(len(names) for names in OWN.values())

    cluster.umbrella(providers={"doppler": {"enabled": True}}, crds={"createAllGenerators": False})

    assert cluster.stored() == store
    assert {name: crd["uid"] for name, crd in cluster.crds().items()} == everything
    assert cluster.rendered(cluster.helm, RELEASE) == set(everything), "it goes on to upgrade the CRDs that it owns"

    cluster.helm("uninstall", RELEASE)
    assert cluster.stored() == store


@pytest.mark.slow
def test_an_administrator_removes_the_crds_of_a_disabled_provider_for_good(cluster: Cluster) -> None:
    cluster.umbrella(providers={"vault": {"enabled": True}, "fake": {"enabled": True}})
    cluster.store()
    cluster.umbrella(providers={"fake": {"enabled": True}})
    assert cluster.stored()

    said = cluster.guide("for crd in ", {})
    assert "main" in said, "it lists the objects that would be lost"
    cluster.umbrella(providers={"fake": {"enabled": True}})

    assert set(cluster.crds()) == CORE | OWN["fake"]


@pytest.mark.slow
def test_two_releases_never_own_the_same_crd(cluster: Cluster) -> None:
    """The one that came first keeps them, and the other one says so."""
    cluster.provider("vault-of-team")
    said = cluster.umbrella(providers={"vault": {"enabled": True}, "fake": {"enabled": True}})

    theirs = f"CRDs of provider vault belong to Helm release {TEAM}/vault-of-team and stay as they are"
    assert theirs in said
    assert "of provider fake" not in said
    assert cluster.owners() == {"vault-of-team": OWN["vault"], RELEASE: CORE | OWN["fake"]}

    cluster.umbrella(providers={"fake": {"enabled": True}})
    again = cluster.provider("fake-of-team", name="fake")
    assert f"CRDs of provider fake belong to Helm release {NAMESPACE}/{RELEASE} and stay" in again
    assert cluster.rendered(cluster.helm, RELEASE) == CORE | OWN["fake"]
    assert cluster.rendered(cluster.teams, "fake-of-team") == set()

    cluster.guide("kubectl annotate crd", {"vault": "fake", "NEW": "fake-of-team", "NAMESPACE": TEAM})
    cluster.provider("fake-of-team", name="fake")
    cluster.umbrella(providers={"fake": {"enabled": True}})
    assert cluster.rendered(cluster.teams, "fake-of-team") == OWN["fake"]
    assert cluster.rendered(cluster.helm, RELEASE) == CORE
    assert set(cluster.crds()) == CORE | OWN["fake"] | OWN["vault"]


@pytest.mark.slow
def test_crds_that_kubectl_made_stay_with_it_until_helm_takes_them_over(cluster: Cluster, tmp_path: Path) -> None:
    crds = tmp_path / "crds.yaml"
    files = [CHARTS.parent / "crds" / f"{name}.yaml" for name in sorted(CORE | OWN["vault"])]
    crds.write_text("".join(file.read_text() for file in files))
    cluster.kubectl("create", "-f", str(crds))

    assert "CRDs of provider vault belong to no Helm release and stay as they are" in cluster.provider("vault-of-team")
    assert cluster.rendered(cluster.teams, "vault-of-team") == set()

    command = ("upgrade", "--install", "--create-namespace", RELEASE, str(UMBRELLA))
    assert "exists and cannot be imported" in cluster.helm.fails(*command, values=enabled("vault"))
    cluster.helm(*command, "--take-ownership", values=enabled("vault"))
    assert cluster.rendered(cluster.helm, RELEASE) == CORE | OWN["vault"]
