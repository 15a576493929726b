"""Every command that a page shows is run by a test, or says here why no test runs it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^ *```(?:sh|bash|shell|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
GUIDES: Final = "tests/e2e/test_guides.py"


@dataclass(frozen=True, slots=True)
class Run:
    """The test that runs the block. Its file names the page."""

    file: str
    test: str


@dataclass(frozen=True, slots=True)
class Because:
    """Why no test runs the block; `checked_by` is a test of what can be checked without running it."""

    reason: str
    checked_by: str = ""


SWITCHING = Run(GUIDES, "test_the_commands_of_the_guide_on_switching_take_a_cluster_over")
TUTORIAL = Run(GUIDES, "test_the_commands_of_the_tutorial_lead_from_nothing_to_a_rotating_secret")
UNINSTALL = Run(GUIDES, "test_the_commands_of_the_page_on_uninstalling_keep_the_secrets")
TAKEOVER = Run("tests/deploy/test_takeover.py", "test_the_commands_of_the_guide_take_a_release_over_and_back")
MIGRATION = Run(
    "packages/eso-cli/tests/test_migrate_live.py", "test_the_commands_of_the_guide_have_the_described_effects"
)
CHARTS = "tests/deploy/test_install_guide.py::test_a_chart_and_what_is_set_of_it_exist"
HELM = Because("helm and a cluster that runs pods are needed", CHARTS)
IMAGE = Because("a base image is needed", "tests/deploy/test_install_guide.py::test_the_guides_build_images_that_exist")
RELEASE = Because("a second machine or a maintainer's identity is needed", "tests/images/test_release.py")
VAULT = Because("the CLI of Vault is needed; the tests do the same through its API", "tests/e2e/test_vault_auth.py")

BLOCKS: Final[dict[str, dict[str, Run | Because]]] = {
    "docs/guides/check-templates.md": {
        "echo 'password:": Run(GUIDES, "test_the_guide_on_templates_renders_and_its_mistakes_are_found"),
    },
    "docs/guides/coming-from-go-eso.md": {
        "eso preflight": SWITCHING,
        "helm upgrade": Because("helm and a release of the Go operator's chart are needed"),
        "eso provider list": SWITCHING,
        "kubectl -n external-secrets scale": Because("the Deployments and webhooks of the Go operator are needed"),
        "eso crds >": SWITCHING,
        "kubectl create namespace": SWITCHING,
        "eso operator": SWITCHING,
        "kubectl get secretstores": SWITCHING,
        "kill %2 %1": SWITCHING,
    },
    "docs/guides/compose.md": {
        "make dist": IMAGE,
        "export ESO_MANIFESTS": Because(
            "a container engine is needed; the commands of the services are run",
            "tests/deploy/test_compose.py::test_the_commands_of_the_file_sync_a_value_from_openbao",
        ),
    },
    "docs/guides/dashboard.md": {"helm upgrade": HELM},
    "docs/guides/helm-upgrade.md": {
        "helm upgrade external-secrets external-secrets/external-secrets": TAKEOVER,
        "helm get values": TAKEOVER,
        "helm upgrade external-secrets deploy/charts": TAKEOVER,
        "kubectl delete validatingwebhookconfigurations": TAKEOVER,
        "kubectl get providerclasses": TAKEOVER,
        "helm history": TAKEOVER,
    },
    "docs/guides/install.md": {
        "BASE=python": IMAGE,
        "helm install external-secrets deploy/charts/external-secrets --namespace external-secrets": HELM,
        "helm install external-secrets deploy/charts/external-secrets --namespace team-a": HELM,
        "helm install weather": HELM,
        "kubectl annotate crd -l": Run(
            "tests/deploy/test_provider_crds.py", "test_two_releases_never_own_the_same_crd"
        ),
        "for crd in": Run(
            "tests/deploy/test_provider_crds.py",
            "test_an_administrator_removes_the_crds_of_a_disabled_provider_for_good",
        ),
        "eso provider list --needed": Because(
            "other tests run this command", "packages/eso-cli/tests/test_provider_list.py"
        ),
        "make image NAME=providers": Because("a container tool and helm are needed", CHARTS),
        "kubectl get providerclasses": Because("it only lists objects", "tests/kubectl/test_reading.py"),
        "helm upgrade external-secrets": HELM,
        "helm test external-secrets": Because(
            "a cluster that runs pods is needed",
            "tests/deploy/test_acceptance.py::test_helm_test_passes_and_names_a_provider_that_is_not_there",
        ),
    },
    "docs/guides/migrate-to-v2.md": {"eso migrate": MIGRATION},
    "docs/guides/one-machine.md": {
        "eso up -f manifests/": Because("other tests run this command", "packages/eso-cli/tests/test_up_providers.py"),
        "eso up -f manifests/ --shared-providers": Because(
            "other tests run this command", "packages/eso-cli/tests/test_up_shared.py"
        ),
    },
    "docs/guides/plan.md": {
        "eso plan": Because("other tests run this command", "packages/eso-cli/tests/test_plan.py"),
    },
    "docs/guides/provider-certificates.md": {
        "kubectl -n external-secrets get secret": Because(
            "a provider inside a cluster is needed",
            "packages/eso-operator/tests/certificates/test_certificate_guide.py",
        ),
    },
    "docs/guides/providers/aws.md": {
        "helm upgrade external-secrets deploy/charts": HELM,
        "aws sqs create-queue": Because("an AWS account is needed", "tests/e2e/test_aws.py"),
    },
    "docs/guides/providers/azure.md": {
        "az eventgrid": Because("an Azure account is needed", "tests/e2e/test_azure.py")
    },
    "docs/guides/providers/vault-auth.md": {
        "vault policy write external-secrets": VAULT,
        "vault token create": VAULT,
        "vault auth enable approle": VAULT,
        "vault auth enable kubernetes": VAULT,
        "vault auth enable jwt": VAULT,
        "vault auth enable ldap": VAULT,
        "vault auth enable cert": VAULT,
        "vault auth enable aws": VAULT,
        "vault auth enable gcp": VAULT,
        "vault secrets enable database": VAULT,
    },
    "docs/guides/providers/vault.md": {"vault kv put": VAULT},
    "docs/guides/refresh-on-change.md": {
        "kubectl get secretstore vault": Because("it only prints a condition", "tests/kubectl/test_reading.py"),
    },
    "docs/guides/status.md": {
        "eso status": Because("other tests run this command", "packages/eso-cli/tests/test_status.py"),
    },
    "docs/guides/troubleshooting.md": {
        "eso why externalsecret": Because("other tests run this command", "packages/eso-cli/tests/test_why.py"),
    },
    "docs/guides/write-a-provider.md": {
        "eso provider new": Because(
            "pip install needs a package index; the other commands are run",
            f"{GUIDES}::test_the_commands_of_the_guide_on_providers_try_a_new_one",
        ),
        "eso provider serve": Run(GUIDES, "test_the_commands_of_the_guide_on_providers_try_a_new_one"),
    },
    "docs/howto/clusterexternalsecret.md": {
        "kubectl get clusterexternalsecret": Because("it only prints a status", "packages/eso-cli/tests/test_why.py"),
    },
    "docs/releasing.md": {
        "make check": Because("it takes hours", "tests/images/test_release.py"),
        "git fetch": RELEASE,
        "cp dist": IMAGE,
        "git tag --sign": RELEASE,
        "sigstore verify": RELEASE,
    },
    "docs/guides/scale-out.md": {
        "kubectl -n external-secrets get leases": Because(
            "several replicas on a cluster are needed", "packages/eso-operator/tests/process/test_live_shards.py"
        ),
    },
    "docs/howto/uninstall.md": {
        "helm uninstall": Because("helm and a cluster that runs pods are needed"),
        "kubectl delete clusterexternalsecrets": UNINSTALL,
        "kubectl delete clusterpushsecrets": UNINSTALL,
        "kubectl delete -f deploy/crds": UNINSTALL,
    },
    "docs/tutorial.md": {
        "make setup": Because("its effect is the workspace that the tests run in"),
        "export BAO_ADDR": TUTORIAL,
        "bao kv put -mount=secret app/db user=app password=first": TUTORIAL,
        "eso up --ready-file": TUTORIAL,
        "kubectl create namespace shop": TUTORIAL,
        "kubectl apply -f - <<'EOF'\napiVersion: external-secrets.io/v1\nkind: ExternalSecret": TUTORIAL,
        "bao kv put -mount=secret app/db user=app password=second": TUTORIAL,
        "kubectl apply -f - <<'EOF'\napiVersion: generators": TUTORIAL,
        "eso status --namespace shop": TUTORIAL,
        "kill %2 %1": TUTORIAL,
    },
}
"""The entry of each block, by page and by the beginning of the block; the longest beginning counts."""


def shown() -> dict[str, list[str]]:
    """Return the blocks of commands of each page."""
    pages = {path: BLOCK.findall(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "docs").rglob("*.md"))}
    return {str(path.relative_to(ROOT)): blocks for path, blocks in pages.items() if blocks}


def entry_of(page: str, block: str) -> str:
    """Return the beginning under which a block is listed; empty if it is not."""
    return max((begin for begin in BLOCKS.get(page, {}) if block.startswith(begin)), key=len, default="")


def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", shown())
def test_every_block_of_a_page_is_run_or_says_why_not(page: str) -> None:
    unlisted = [block.splitlines()[0] for block in shown()[page] if not entry_of(page, block)]

    assert unlisted == [], f"{page}: run these in a test and list it in BLOCKS, or give the reason there"


def test_every_entry_is_about_a_block_that_is_shown() -> None:
    used = {(page, entry_of(page, block)) for page, blocks in shown().items() for block in blocks}

    assert {(page, begin) for page, entries in BLOCKS.items() for begin in entries} - used == set()


def test_the_named_tests_exist_and_read_the_page() -> None:
    wrong = []
    for page, entries in BLOCKS.items():
        for entry in entries.values():
            match entry:
                case Run(file, test):
                    fits = test in functions(file) and Path(page).name in (ROOT / file).read_text(encoding="utf-8")
                case Because(checked_by=checked_by):
                    file, _, test = checked_by.partition("::")
                    fits = not file or ((ROOT / file).exists() and (not test or test in functions(file)))
            if not fits:
                wrong.append((page, entry))

    assert wrong == []
