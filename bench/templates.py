"""Templates: realistic ones, cold and cached, compared with Go's text/template in the same run; and the import time.

Go runs the templates that need only functions of its small program and have the same output; the ratios cover these.

Cold, for Go, is the work of the Go operator for each key. It keeps no parsed template. It creates its map of functions
once, and registering all 227 with a new template takes most of the time. So the Go program creates its map once, too.
We compared that program with the operator's own code and functions on the same templates: a render allocates the same
there, 87 kilobytes in 123 pieces, and takes the same time within the noise of a shared machine.

Cold, for us, is a text that was never rendered: each one ends with another number (Go's with a number of that length),
so that no cache of texts helps. As in an operator, the functions are loaded and the cache keeps rendered texts.

Both sides run with their garbage collectors on, as by default, in batches long enough to include collections: the
fastest of a few renders would leave its garbage to the next one.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from report import Row, ratio, shown

from eso_render import Renderer, RenderError
from eso_render.rendering import MeteredRenderer
from gotmpl.run import MissingKey

ROOT = Path(__file__).resolve().parent.parent
VECTORS = [ROOT / f"{name}/tests/vectors/templates.jsonl" for name in ("libs/gotmpl", "packages/eso-render")]
GO_SOURCE = Path(__file__).resolve().parent / "gotemplates" / "main.go"
ROUNDS = 3
COLD, CACHED = (5, 200), (40, 25)
"""Batches, and renders per batch, as in the Go program. Cached renders create little garbage, so short batches do."""
_NUMBERS = count(1_000_000)


def measure() -> list[Row]:
    cases = realistic()
    renderer = Renderer()
    cold, cached = [_cold(renderer, case) for case in cases], [_cached(renderer, case) for case in cases]
    rows = [
        shown("templates, cold: median microseconds", f"{statistics.median(cold):.0f}"),
        shown("templates, cached: median microseconds", f"{statistics.median(cached):.0f}"),
        shown("import eso_render: milliseconds, best of 7", f"{_import_time():.0f}"),
    ]
    on_the_loop = [(quick, plain) for quick, plain in zip(map(_on_the_loop, cases), cached, strict=True) if quick]
    rows += [
        shown("templates that stay on the event loop", f"{len(on_the_loop)} of {len(cases)}"),
        ratio(
            "templates, cached, on the event loop / elsewhere",
            statistics.median(quick / plain for quick, plain in on_the_loop),
            at_most=1.5,
        ),
    ]
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    return rows + (_against(go, cases) if go else [shown("Go's text/template", "no Go toolchain found")])


def realistic() -> list[dict[str, Any]]:
    vectors = [json.loads(line) for path in VECTORS for line in path.read_text(encoding="utf-8").strip().split("\n")]
    wanted = [vector for vector in vectors if vector["family"] == "realistic" and "expect_output" in vector]
    return [{**vector, "bytes": _data(vector)} for vector in wanted]


def _best(renderer: Renderer, values: dict[str, bytes], batches: Iterable[list[str]]) -> float:
    """Return the microseconds per render in the fastest batch: other load on the machine can only add time."""
    shortest = float("inf")
    for batch in batches:
        started = time.perf_counter()
        for text in batch:
            _render(renderer, text, values)
        shortest = min(shortest, (time.perf_counter() - started) / len(batch))
    return shortest * 1e6


def _data(case: dict[str, Any]) -> dict[str, bytes]:
    return {key: value.encode() for key, value in case.get("data", {}).items()}


def _render(renderer: Renderer, text: str, values: dict[str, bytes]) -> bytes:
    try:
        return renderer.render(text, values)
    except RenderError:
        return b""


def _cold(renderer: Renderer, case: dict[str, Any]) -> float:
    _render(renderer, case["template"], case["bytes"])  # loads the functions
    batches, size = COLD
    texts = ([f"{case['template']} {next(_NUMBERS)}" for _ in range(size)] for _ in range(batches))
    return _best(renderer, case["bytes"], texts)


def _cached(renderer: Renderer, case: dict[str, Any]) -> float:
    _render(renderer, case["template"], case["bytes"])
    batches, size = CACHED
    return _best(renderer, case["bytes"], ([case["template"]] * size for _ in range(batches)))


def _on_the_loop(case: dict[str, Any]) -> float:
    """Return the same with a time estimate before each step; 0 if the estimate sends the template to a worker."""
    quick = MeteredRenderer("{{", "}}", missing=MissingKey.ERROR)
    batches, size = CACHED
    shortest = float("inf")
    for _ in range(batches):
        started = time.perf_counter()
        quick.meter.begin()
        for _ in range(size):
            try:
                quick(case["template"], case["bytes"], name="tpl")
            except RenderError:
                if quick.meter.spent:
                    return 0.0
        shortest = min(shortest, (time.perf_counter() - started) / size)
    return shortest * 1e6


def _import_time() -> float:
    code = "import time; t = time.perf_counter(); import eso_render; print((time.perf_counter() - t) * 1e3)"
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
            for _ in range(8)
        ]
    return min(float(run.stdout) for run in runs[1:])


def _against(go: str, cases: list[dict[str, Any]]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(GO_SOURCE, folder)
        (Path(folder) / "go.mod").write_text("module gotemplates\n\ngo 1.21\n")
        built = subprocess.run([go, "build", "-o", "gotemplates", "."], cwd=folder, capture_output=True, check=False)
        if built.returncode:
            return [shown("Go's text/template", "the Go program does not build here")]
        asked = json.dumps([{"template": case["template"], "data": case.get("data", {})} for case in cases])
        cold: list[float] = []
        cached: list[float] = []
        renderer = Renderer()
        same: list[int] = []
        for _ in range(ROUNDS):
            answers = json.loads(
                subprocess.run(
                    [str(Path(folder) / "gotemplates")], input=asked, capture_output=True, text=True, check=True
                ).stdout
            )
            same = [n for n, answer in enumerate(answers) if answer["output"] == cases[n]["expect_output"]]
            go_cold = sum(answers[n]["cold"] for n in same) / len(same)
            go_cached = sum(answers[n]["cached"] for n in same) / len(same)
            cold.append(sum(_cold(renderer, cases[n]) for n in same) / len(same) / go_cold)
            cached.append(sum(_cached(renderer, cases[n]) for n in same) / len(same) / go_cached)
    return [
        shown("templates that both render", str(len(same))),
        shown("Go, cold and cached: mean microseconds", f"{go_cold:.0f}, {go_cached:.1f}"),
        ratio("templates, cold / Go registering 227 functions", statistics.median(cold), at_most=1.0),
        ratio("templates, cached / Go executing", statistics.median(cached), at_most=4.0),
    ]
