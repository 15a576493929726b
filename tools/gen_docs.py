"""Write the pages of docs/reference, or check that they are up to date.

gen_docs.py [--check] DIR

Facts come from the code, words from YAML files in DIR where the code has none; `pages/` has a module for each page,
and one for each folder of pages (kinds, generators).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from pages.markdown import DocsError

PAGES: Final = ("templates", "flags", "metrics", "status")
FOLDERS: Final = ("kinds", "generators")
"""Folders with one page for each member."""


def main(arguments: list[str]) -> int:
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print("usage: gen_docs.py [--check] DIR", file=sys.stderr)
        return 2
    folder = Path(folders[0])
    try:
        texts = {folder / f"{name}.md": import_module(f"pages.{name}").page(folder) for name in PAGES}
        for name in FOLDERS:
            texts |= {folder / path: text for path, text in import_module(f"pages.{name}").pages(folder).items()}
    except DocsError as exc:
        print(exc, file=sys.stderr)
        return 1
    gone = [path for name in FOLDERS for path in sorted((folder / name).glob("*.md")) if path not in texts]
    return compare(texts, gone) if "--check" in arguments else write(texts, gone)


def compare(texts: dict[Path, str], gone: list[Path]) -> int:
    stale = [path for path, text in texts.items() if not _holds(path, text)] + gone
    if stale:
        listed = "".join(f"\n  {path}" for path in stale)
        print(f"generated files are not up to date; run `make gen`:{listed}", file=sys.stderr)
    return 1 if stale else 0


def write(texts: dict[Path, str], gone: list[Path]) -> int:
    changed = [path for path, text in texts.items() if not _holds(path, text)]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    print(f"{len(texts)} reference pages: {len(changed)} written, {len(gone)} removed")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
