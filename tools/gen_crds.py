"""Write the CRDs of the core and of every provider in this workspace, one file each; or check that they are up to date.

gen_crds.py [--check] DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

HEADER = "# Generated from the types by `make gen`; do not edit.\n---\n"


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print("usage: gen_crds.py [--check] DIR", file=sys.stderr)
        return 2
    folder = Path(folders[0])
    wanted = rendered()
    stale = [path for path in sorted(folder.glob("*.yaml")) if path.name not in wanted]
    changed = [folder / name for name, text in wanted.items() if _read(folder / name) != text]
    if check:
        return _report(changed + stale)
    folder.mkdir(parents=True, exist_ok=True)
    for path in changed:
        path.write_text(wanted[path.name], encoding="utf-8")
    for path in stale:
        path.unlink()
    print(f"{len(wanted)} CRDs in {folder}: {len(changed)} written, {len(stale)} removed")
    return 0


def rendered() -> dict[str, str]:
    """Return file name and content for every CRD, by name."""
    from eso_api.crd import crd_yaml
    from eso_api.kinds import KINDS, provider_kinds

    owned = {"": KINDS, **provider_kinds()}
    return {
        f"{kind.crd_name}.yaml": HEADER + crd_yaml(kind, provider=provider)
        for provider, kinds in owned.items()
        for kind in kinds
    }


def _report(stale: list[Path]) -> int:
    if not stale:
        return 0
    print("generated files are not up to date; run `make gen`:", file=sys.stderr)
    for path in sorted(stale):
        print(f"  {path}", file=sys.stderr)
    return 1


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
