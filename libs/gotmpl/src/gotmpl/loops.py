"""The values that {{range}} iterates over. The loop itself is a statement."""

from __future__ import annotations

from gotmpl.formatting import spelled_out
from gotmpl.run import Run
from gotmpl.values import Value, sorted_keys


def entries(run: Run, container: Value, wanted: int) -> list[tuple[Value, Value]] | enumerate[Value]:
    """Return index or key, and element. Maps are sorted by key."""
    if isinstance(container, list):
        return enumerate(container)
    if isinstance(container, dict):
        return [(key, container[key]) for key in sorted_keys(container)]
    if isinstance(container, int) and not isinstance(container, bool):
        if wanted > 1:
            raise run.error(f"can't use {container} to iterate over more than one variable")
        if container > run.steps:
            raise run.over(f"a range over {container} is too long")
        kind = type(container)
        return [(kind(i), kind(i)) for i in range(container)]
    if container is None:
        return []
    raise run.error(f"range can't iterate over {spelled_out(container, run.text)}")
