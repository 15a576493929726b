"""Report Python files and functions that outgrow a screen; fail past the limits."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_WARN, FILE_LIMIT = 600, 800
FUNCTION_WARN, FUNCTION_LIMIT = 60, 80


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in map(Path, listed.stdout.split()) if path.exists() and "_generated" not in path.parts]


def functions(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{path}:{node.lineno} {node.name}"


def report(title: str, rows: list[tuple[int, str]], warn: int, limit: int) -> int:
    over = [row for row in rows if row[0] > limit]
    near = sum(warn < size <= limit for size, _ in rows)
    print(
        f"{title}: {len(rows)}, largest {max(rows, default=(0, '-'))[0]}, {near} over {warn}, {len(over)} over {limit}"
    )
    for size, where in sorted(over, reverse=True):
        print(f"  {size:5} {where}")
    return len(over)


def main() -> int:
    files: list[tuple[int, str]] = []
    bodies: list[tuple[int, str]] = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        files.append((text.count("\n"), str(path)))
        bodies.extend(functions(path, ast.parse(text)))
    over = report("files", files, FILE_WARN, FILE_LIMIT) + report("functions", bodies, FUNCTION_WARN, FUNCTION_LIMIT)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
