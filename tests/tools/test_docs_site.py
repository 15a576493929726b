"""The documentation site: it is built from every page, stands alone, and is refused with a dead link."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eso_api.kinds import installed_kinds

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = sorted(path.parent.name for path in (ROOT / "providers").glob("*/pyproject.toml"))
# Elements and rules with which a browser loads something; a plain link to another site loads nothing.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|object|embed)\b[^>]*?\b(?:src|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|url\(["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)"""
)


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", target)
    assert done.returncode == 0, done.stderr
    return target


def test_reading_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    texts = [path for path in site.rglob("*") if path.suffix in {".html", ".css", ".svg"}]

    loaded = {
        f"{path.relative_to(site)}: {next(filter(None, found))}"
        for path in texts
        for found in LOADED.findall(path.read_text(encoding="utf-8"))
    }

    assert len(texts) > 50
    assert loaded == set()
    # Material's script would fetch Mermaid from a CDN for such a block.
    assert [path for path in texts if 'class="mermaid"' in path.read_text(encoding="utf-8")] == []


def test_the_site_names_neither_this_machine_nor_its_folders(site: Path) -> None:
    texts = [path for path in site.rglob("*") if path.suffix in {".html", ".json", ".xml", ".svg"}]
    private = [str(ROOT), *(name for name in [socket.gethostname()] if len(name) > 8)]

    assert [path for path in texts for word in private if word in path.read_text(encoding="utf-8")] == []


def test_every_page_and_every_provider_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}

    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {str(page).replace("README.html", "index.html") for page in pages}
    assert (expected | {f"providers/{name}.html" for name in PROVIDERS}) - found == set()


def test_the_menu_names_every_kind(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    menu = re.findall(r'href="reference/kinds/([\w.-]+)\.html" class="md-nav__link">.*?>\s*(\w+)\s*<', home, re.DOTALL)

    assert {(kind.crd_name, kind.name) for kind in installed_kinds()} - set(menu) == set()


@pytest.mark.parametrize(
    ("link", "code", "complaint"),
    [
        pytest.param("guides/limits.md#sizes", 0, "", id="a good link"),
        pytest.param("guides/limits.md#gone", 1, "contains a link 'guides/limits.md#gone'", id="a dead anchor"),
        pytest.param("guides/gone.md", 1, "contains a link 'guides/gone.md'", id="a dead page"),
    ],
)
def test_a_dead_link_is_refused(link: str, code: int, complaint: str, tmp_path: Path) -> None:
    """With the settings of the real site, on two pages."""
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "README.md").write_text(f"# Home\n\n[link]({link})\n", encoding="utf-8")
    (tmp_path / "docs" / "guides" / "limits.md").write_text("# Limits\n\n## Sizes\n", encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    own = "hooks: []\nnav: [README.md, guides/limits.md]\n"
    config.write_text(f"INHERIT: {ROOT}/mkdocs.yml\n{own}", encoding="utf-8")

    done = build(config, tmp_path / "site")

    assert done.returncode == code, done.stderr
    assert complaint in done.stderr
