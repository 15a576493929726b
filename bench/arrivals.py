"""Objects created while the operator runs: the time from the first create to the last Ready.

The floor is a bare client that creates the same objects with the same concurrency, and makes both writes of each. It
runs before and after each round, because machines are shared.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median

from report import Row, ratio, shown
from samples import KEYS, OBJECTS, external_secret, remove, write_bare
from stage import ES, Served, Stage, cpu_seconds, operator, operator_is_ready, parallel

from kubebase.meta import JsonObject, ObjectKey, key_of

ROUNDS = {"": 5, "with templates, ": 3}
SLOWDOWN = {"": 1.3, "with templates, ": 1.4}
SPECS: dict[str, JsonObject] = {
    "": {},
    "with templates, ": {
        "target": {
            "template": {
                "data": {
                    f"key-{number}": f'user: app\npassword: {{{{ index . "key-{number}" | quote }}}}\n'
                    for number in range(KEYS)
                }
            }
        }
    },
}
CPU_MILLISECONDS = 1.6
"""The operator's CPU time for one object."""
SETTLED_AFTER = 3.0
"""Seconds after the last Ready until the CPU time is taken: it includes the work that follows a report."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The objects of one round."""

    seconds: float
    """From the first create to the last Ready."""
    latencies: list[float]
    """Of each object, from its create to its Ready; the shortest first."""
    cpu: float
    """The operator's CPU seconds for each object."""

    def percentile(self, percent: int) -> float:
        return self.latencies[round(percent / 100 * len(self.latencies)) - 1]


async def created_while_it_runs(stage: Stage, served: Served) -> list[Row]:
    """Compare each round with the bare client's runs right before and after it; the median ratio counts."""
    rows = []
    for sort, (what, spec) in enumerate(SPECS.items()):
        floors = [await bare_client(stage, f"floor-{sort}", spec)]
        rounds = []
        for number in range(ROUNDS[what]):
            with operator(stage, served) as pid:
                rounds.append(await arrive(stage, pid, f"arrival-{sort}-{number}", spec))
            floors.append(await bare_client(stage, f"floor-{sort}-{number}", spec))
        rows += _rows(what, floors, rounds)
    return rows


async def bare_client(stage: Stage, prefix: str, spec: JsonObject) -> float:
    """Return the seconds in which a client creates the objects, their Secrets and their statuses."""
    objects = [external_secret(number, prefix=prefix, **spec) for number in range(OBJECTS)]

    async def create_and_write(obj: JsonObject) -> None:
        await write_bare(stage, await stage.client.create(ES, obj))

    started = time.perf_counter()
    await parallel([create_and_write(obj) for obj in objects])
    took = time.perf_counter() - started
    await remove(stage, objects)
    return took


async def arrive(stage: Stage, pid: int, prefix: str, spec: JsonObject) -> Arrivals:
    """Create the objects while the operator runs and its store is in use; return how soon they became Ready."""
    await operator_is_ready()
    first = external_secret(0, prefix=f"{prefix}-first")
    objects = [external_secret(number, prefix=prefix, **spec) for number in range(OBJECTS)]
    created: dict[ObjectKey, float] = {}

    async def create(obj: JsonObject) -> None:
        created[key_of(obj)] = time.perf_counter()
        await stage.client.create(ES, obj)

    async with stage.readiness() as readiness:
        await create(first)
        await readiness.of_all([key_of(first)])
        before, started = cpu_seconds(pid), time.perf_counter()
        await parallel([create(obj) for obj in objects])
        await readiness.of_all([key_of(obj) for obj in objects])
        seconds = max(readiness.since.values()) - started
        await asyncio.sleep(SETTLED_AFTER)
        cpu = (cpu_seconds(pid) - before) / OBJECTS
    latencies = sorted(readiness.since[key_of(obj)] - created[key_of(obj)] for obj in objects)
    await remove(stage, [first, *objects])
    return Arrivals(seconds, latencies, cpu)


def _rows(what: str, floors: list[float], rounds: list[Arrivals]) -> list[Row]:
    pairs = zip(rounds, floors, floors[1:], strict=False)
    slowdown = median(each.seconds / ((before + after) / 2) for each, before, after in pairs)
    cpu = 1000 * median(each.cpu for each in rounds)
    return [
        shown(f"{what}a bare client: seconds to create 1,000 objects and make both writes", _listed(floors)),
        shown(
            f"{what}operator, running: seconds from the first create to the last Ready",
            _listed([each.seconds for each in rounds]),
        ),
        ratio(f"{what}first create to last Ready / bare client", slowdown, at_most=SLOWDOWN[what]),
        shown(f"{what}create to Ready of one object: median", _listed([each.percentile(50) for each in rounds])),
        shown(f"{what}create to Ready of one object: p99", _listed([each.percentile(99) for each in rounds])),
        Row(
            f"{what}operator: CPU for each object",
            f"{cpu:.2f} ms",
            f"<= {CPU_MILLISECONDS} ms",
            cpu <= CPU_MILLISECONDS,
        ),
    ]


def _listed(measured: list[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in measured)
