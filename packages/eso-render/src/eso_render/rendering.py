"""Render templates so that slow work of one namespace does not delay others.

quick   on the event loop, where every step is checked beforehand: nearly every object
slow    everything again in a worker process, which is killed at its deadline

The rates of the quick renderer are upper bounds, measured on long inputs. It never calls a function without a rate:
patterns, keys, certificates, key derivation, random text, and functions with large output for small input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from eso_render.engine import Renderer
from eso_render.errors import RenderError
from eso_render.functions import functions
from eso_render.jobs import Job, TextRenderer
from eso_render.metering import QUICK_SECONDS, Meter, Metered, Seconds, busy_seconds, wall_nanos
from eso_render.workers import Workers
from gotmpl.functions import Func
from gotmpl.run import MissingKey, TemplateLimits
from gotmpl.statements import Parsed
from gotmpl.template import Engine
from gotmpl.values import Value

T = TypeVar("T")


class Rendering:
    """Rendering with one set of delimiters. All instances share the workers of the process."""

    def __init__(
        self, workers: Workers, left: str = "{{", right: str = "}}", *, missing: MissingKey = MissingKey.ERROR
    ) -> None:
        self._workers = workers
        self._delimiters = left, right
        self._missing = missing
        self._quick = MeteredRenderer(left, right, missing=missing)

    async def run(self, work: Callable[..., T], share: str) -> T:
        """Run `work` with a renderer passed as `render`, and return its result. It may run twice, so it must be pure.

        `work` is a module-level function with bound arguments (`functools.partial`): it may be sent to another process,
        which imports its module. `share` is the namespace it is for.
        """
        meter = self._quick.meter
        meter.begin()
        try:
            made = work(render=self._quick)
        except Exception:  # the work may wrap the error in its own
            if not meter.spent:
                raise
        else:
            if not meter.spent:
                return made
        job = Job(work, *self._delimiters, self._missing, self._workers.seconds)
        slow: T = await self._workers.run(job, share)
        return slow


def rendering_of_keys(workers: Workers) -> Rendering:
    """Return a rendering for templates that rename keys: default delimiters, and missing fields are not errors."""
    return Rendering(workers, missing=MissingKey.NOTHING)


_STEPS: Final = 5_000
_OUTPUT_BYTES: Final = 256 * 1024
_SMALL: Final = 64
"""Smaller arguments need no check of the clock: the engine itself checks it every few calls."""
_ENTRY_BYTES: Final = 16
_MOST_ENTRIES: Final = 10_000
_DECODE_NANOS: Final = 2
"""Per byte of the values, which are decoded to text first."""
_PARSE_NANOS: Final = 1_500
"""Per character of a template that is not cached."""

_NATIVE: Final = 20
_PYTHON: Final = 600
_SLOW: Final = 4_000
_RATES: Final[Mapping[int, str]] = {
    _NATIVE: (
        "and or not call eq ne lt le gt ge len index slice default empty coalesce ternary fail hasPrefix hasSuffix "
        "contains trim trimAll trimall trimPrefix trimSuffix trunc substr upper lower squote toString cat b64enc "
        "b64dec sha1sum sha256sum sha512sum adler32sum replace indent nindent base dir ext clean isAbs hasKey get dig "
        "int int64 float64 atoi toDecimal add add1 add1f addf sub subf mul mulf div divf mod max maxf min minf biggest "
        "ceil floor round kindOf kindIs typeOf typeIs typeIsLike uuidv4 hello randInt"
    ),
    _PYTHON: (
        "print println printf quote html js urlquery toJson toRawJson toPrettyJson mustToJson mustToRawJson "
        "mustToPrettyJson fromJson mustFromJson toYaml title untitle nospace initials swapcase camelcase abbrev wrap "
        "b32enc b32dec hexdec split splitList splitn join sortAlpha toStrings list tuple dict set unset pluck pick "
        "omit keys values append mustAppend push mustPush prepend mustPrepend concat first mustFirst last mustLast "
        "rest mustRest initial mustInitial compact mustCompact reverse mustReverse merge mergeOverwrite mustMerge "
        "mustMergeOverwrite deepCopy mustDeepCopy plural now date dateInZone date_in_zone htmlDate unixEpoch toDate"
    ),
    _SLOW: "fromYaml snakecase kebabcase urlParse urlJoin",
}
"""Upper bounds in nanoseconds per byte of input, by function."""

RATES: Final = {name: rate for rate, names in _RATES.items() for name in names.split()}


class MeteredRenderer(Metered, TextRenderer):
    """A `RenderText` for the event loop with one set of delimiters; call `meter.begin` for each object."""

    def __init__(self, left: str, right: str, *, missing: MissingKey, seconds: Seconds = busy_seconds) -> None:
        super().__init__(seconds)
        limits = TemplateLimits(output_bytes=_OUTPUT_BYTES, steps=_STEPS, seconds=QUICK_SECONDS, clock=seconds)
        self._renderer = Renderer(engine=_MeteredEngine(self.meter, limits, missing=missing))
        self._left = left
        self._right = right

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes:
        self.meter.allow(_DECODE_NANOS * sum(map(len, values.values())))
        try:
            return self._renderer.render(template, values, name=name, left=self._left, right=self._right)
        except RenderError as problem:
            raise self._judged(problem) from None

    def groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str) -> bytes:
        self.meter.allow(_DECODE_NANOS * sum(len(value) for values in groups.values() for value in values.values()))
        try:
            return self._renderer.render_groups(template, groups, name=name)
        except RenderError as problem:
            raise self._judged(problem) from None

    def _judged(self, problem: RenderError) -> RenderError:
        """Treat an exceeded limit as too slow: a worker has higher limits."""
        return self.meter.over() if problem.is_bound else problem


class _MeteredEngine(Engine):
    """Parses only short templates, and calls only functions with a rate."""

    def __init__(self, meter: Meter, limits: TemplateLimits, *, missing: MissingKey) -> None:
        super().__init__(_MeteredFunctions(functions(wall_nanos), meter), limits, missing=missing)
        self._meter = meter

    def _parse(self, text: str, left: str, right: str) -> Parsed:
        self._meter.allow(_PARSE_NANOS * len(text))
        return super()._parse(text, left, right)


class _MeteredFunctions(Mapping[str, Func]):
    """Every function by name, wrapped in a check of the size of its arguments."""

    def __init__(self, known: Mapping[str, Func], meter: Meter) -> None:
        self._known = known
        self._meter = meter
        self._wrapped: dict[str, Func] = {}

    def __getitem__(self, name: str) -> Func:
        made = self._wrapped.get(name)
        if made is None:
            made = self._wrapped[name] = _metered(self._known[name], RATES.get(name), self._meter)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _metered(func: Func, rate: int | None, meter: Meter) -> Func:
    if func.lazy:
        return func
    plain = func.call

    def refuse(*_arguments: Value) -> Value:
        raise meter.over()

    def call(*arguments: Value) -> Value:
        size = 0
        for argument in arguments:
            size += len(argument) if type(argument) is str else _size(argument)
        if size > _SMALL:
            meter.allow(size * (rate or 0))
        return plain(*arguments)

    return Func(func.name, refuse if rate is None else call, func.params, func.variadic, cost=func.cost)


def _size(value: Value) -> int:
    """Return the size of a value in bytes; shared parts count twice, and counting stops early for large values."""
    if not isinstance(value, (list, dict)):
        return 0
    total, entries, waiting = 0, 0, [value]
    while waiting:
        held = waiting.pop()
        entries += len(held)
        if entries > _MOST_ENTRIES:
            return 10**9
        for item in held.values() if isinstance(held, dict) else held:
            if isinstance(item, (list, dict)):
                waiting.append(item)
            elif isinstance(item, str):
                total += len(item)
    return total + entries * _ENTRY_BYTES
