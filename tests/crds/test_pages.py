"""Every manifest in the pages, sent to a server that has our CRDs: a user who copies it gets an object."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kuberun.testing.kubectl import Kubectl

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("our_crds")]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATORS = "docs/reference/generators/"
FOREIGN = {"cert-manager.io"}
"""API groups of other products, whose CRDs we do not have."""
HEREDOC = re.compile(r"^kubectl apply -f - <<'(\w+)'\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def manifests(page: Path) -> list[dict[str, Any]]:
    """Return the objects of a page, those that its commands apply included."""
    text = page.read_text(encoding="utf-8")
    sources = [*BLOCK.findall(text), *(body for _, body in HEREDOC.findall(text))]
    documents = (document for source in sources for document in yaml.load_all(source, Loader=yaml.CSafeLoader))
    objects = [one for one in documents if isinstance(one, dict) and {"apiVersion", "kind", "metadata"} <= set(one)]
    return [one for one in objects if one["apiVersion"].partition("/")[0] not in FOREIGN]


def pages() -> Iterator[Any]:
    """Yield every page with manifests. Those of generators show the examples, which `test_examples.py` applies."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        if (ROOT / line).exists() and not line.startswith(GENERATORS) and manifests(ROOT / line):
            yield pytest.param(ROOT / line, id=line)


@pytest.mark.parametrize("page", list(pages()))
def test_the_server_accepts_every_manifest_of_a_page(page: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    """R76: as it stands. Nothing is stored but namespaces: operators of other tests would act on the rest."""
    found = manifests(page)
    namespaces = sorted({one["metadata"].get("namespace", "default") for one in found})
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    (tmp_path / "namespaces.yaml").write_text(yaml.safe_dump_all(spaces))
    (tmp_path / "page.yaml").write_text(yaml.safe_dump_all(found))

    kubectl("apply", "-f", str(tmp_path / "namespaces.yaml"))
    accepted = kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "page.yaml"))

    assert len(accepted.splitlines()) == len(found)
