"""What mkdocs.yml cannot say: pages that are kept outside `docs/`, and the menu of generated pages.

A hook of MkDocs (`hooks` in mkdocs.yml). The README of a provider stays in its own package, and is `providers/NAME.md`
on the site. The pages of the kinds and generators are found, so that a new one needs no entry.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROVIDERS = ROOT / "providers"
KINDS = ROOT / "docs" / "reference" / "kinds"
GENERATORS = ROOT / "docs" / "reference" / "generators"
TITLE = re.compile(r"^# (\w+) \((.+)\)$", re.MULTILINE)
"""Of the page of a kind: its name and its API group."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the generators to the menu, and those of the kinds by API group."""
    groups: dict[str, list[dict[str, str]]] = {}
    for page in sorted(KINDS.glob("*.*.md")):
        name, group = TITLE.findall(page.read_text(encoding="utf-8"))[0]
        groups.setdefault(group, []).append({name: f"reference/kinds/{page.name}"})
    menu = ["reference/kinds/README.md", *({group: groups[group]} for group in sorted(groups))]
    makers = [f"reference/generators/{page.name}" for page in sorted(GENERATORS.glob("*.md"))]
    config.nav = [*(config.nav or []), {"Generators": makers}, {"Kinds": menu}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the overview of all providers, and the README of each."""
    files.append(_page("providers/README.md", PROVIDERS / "README.md", config))
    for distribution in sorted(PROVIDERS.glob("*/pyproject.toml")):
        readme = distribution.with_name("README.md")
        files.append(_page(f"providers/{readme.parent.name}.md", readme, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes all of them
    """Let links to `providers/README.md`, which are right in the repository, lead to its page of the site."""
    return re.sub(r"\]\((?:\.\./)+providers/README\.md", f"]({_up(page)}providers/README.md", markdown)


def _up(page: Page) -> str:
    return "../" * page.file.src_uri.count("/")


def _page(uri: str, source: Path, config: MkDocsConfig) -> File:
    return File.generated(config, uri, abs_src_path=str(source))
