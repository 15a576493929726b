"""`eso migrate`: reads, plans, then prints the result or carries it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from eso_cli.connecting import connected
from eso_cli.printing import as_yaml
from eso_cli.terminal import echo, printable, sign
from eso_tools.crds import by_provider, how_to_get
from eso_tools.manifests import InputError
from eso_tools.migrate import probes
from eso_tools.migrate.bridges import Bridges, installed_bridges
from eso_tools.migrate.cluster import Cluster, without_broken
from eso_tools.migrate.convert import MADE_BY, Converted
from eso_tools.migrate.inventory import Inventory, id_of, read_files
from eso_tools.migrate.plan import Left, MigrationPlan, Switch, plan_forth
from eso_tools.migrate.rollback import plan_back
from kubebase.clock import Clock, SystemClock
from kubebase.meta import JsonObject
from kuberun.errors import KubeError

DONE, LEFT, UNUSABLE = 0, 1, 2
"""Exit codes: everything is done; something is left, and named; nothing could be done."""

_SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class MigrateOptions:
    files: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str = ""
    output: Path | None = None
    apply: bool = False
    verify: bool = False
    rollback: bool = False
    regenerate: bool = False
    keep_references: bool = False
    timeout: float = 60.0

    def problem(self) -> str:
        """Return why the options cannot be combined; empty if they can."""
        if self.apply and self.files:
            return (
                "--apply changes a cluster; with -f, print the objects or write them with --output-dir, and apply them"
            )
        if self.apply and self.output is not None:
            return "--apply writes to the cluster, --output-dir to files; leave one out"
        if self.verify and not self.apply:
            return (
                "--verify reads through the operator, which needs the v2 objects in the cluster: add --apply, and"
                " --keep-references if no reference may switch yet"
            )
        if self.rollback and (self.verify or self.keep_references):
            return "--rollback goes back to stores that are in use; leave out --verify and --keep-references"
        return ""


async def run(options: MigrateOptions, clock: Clock | None = None) -> int:
    """Migrate, or go back; return the exit code."""
    if problem := options.problem():
        return _refuse(problem)
    try:
        bridges = installed_bridges(_warn)
        if options.files:
            plan = _planned(options, read_files(options.files), bridges)
            code = _written(plan, options)
            made = {(id_of(obj).group, id_of(obj).kind) for obj in plan.made}
            for provider in by_provider(kind for kind in bridges.kinds if (kind.group, kind.name) in made):
                _warn(
                    f"these objects need the CRDs of provider {provider}; if they are missing: {how_to_get(provider)}"
                )
            return code
        async with connected(options.kubeconfig, options.context, command="migrate", field_manager=MADE_BY) as (
            client,
            _,
        ):
            cluster = Cluster(client, clock or SystemClock(), bridges.kinds, options.timeout)
            inventory = await cluster.inventory()
            plan = _planned(options, inventory, bridges)
            if not options.apply:
                code = _written(plan, options)
                for problem in cluster.missing_for(plan.made):
                    _warn(f"before you apply these objects: {problem}")
                return code
            return await _Applied(cluster, inventory, options).carry_out(plan)
    except (InputError, KubeError) as problem:
        return _refuse(str(problem))


def _planned(options: MigrateOptions, inventory: Inventory, bridges: Bridges) -> MigrationPlan:
    if options.rollback:
        return plan_back(inventory, regenerate=options.regenerate)
    return plan_forth(inventory, bridges, regenerate=options.regenerate)


# --- files -----------------------------------------------------------------------------------------------------------


def _written(plan: MigrationPlan, options: MigrateOptions) -> int:
    """Print the objects or write them to files, and report on standard error."""
    objects = [_bare(obj) for obj in plan.made]
    objects += [_bare(each.changed) for each in plan.switches if not options.keep_references]
    if options.output is None:
        echo(as_yaml(objects), nl=False)
    else:
        for obj in objects:
            _write(options.output, obj)
    _report(plan, lambda line: echo(line, err=True))
    for obj in plan.obsolete:
        echo(f"delete {printable(f'{id_of(obj)} of {id_of(obj).group}')} once no object refers to it", err=True)
    return LEFT if plan.left else DONE


def _write(folder: Path, obj: JsonObject) -> None:
    """Write one object to NAMESPACE/KIND.GROUP-NAME.yaml below the folder."""
    one = id_of(obj)
    place = folder / (one.namespace or "cluster") / f"{one.kind.lower()}.{one.group}-{one.name}.yaml"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(as_yaml([obj]))
    except OSError as problem:
        raise InputError(f"{problem.filename or place}: {problem.strerror}") from None


def _bare(obj: JsonObject) -> JsonObject:
    """Return the object as people would write it: without the fields that the API server sets."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_FIELDS}
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = {name: text for name, text in annotations.items() if name != _APPLIED}
    metadata = {name: value for name, value in metadata.items() if value}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}


# --- a cluster -------------------------------------------------------------------------------------------------------


class _Applied:
    """A plan that is carried out, step by step; each step can be repeated."""

    def __init__(self, cluster: Cluster, inventory: Inventory, options: MigrateOptions) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._options = options

    async def carry_out(self, plan: MigrationPlan) -> int:
        """Create v2 objects, wait for the operator, verify, switch; for the way back, switch and remove."""
        switches, left, converted = plan.switches, list(plan.left), plan.converted
        if plan.converted:
            broken = await self._created(plan)
            converted = [each for each in converted if each.origin not in {bad.origin for bad, _ in broken}]
            left += [Left(each.origin, f"{id_of(each.store)}: {why}") for each, why in broken]
            switches, more = without_broken(switches, {id_of(each.store): why for each, why in broken})
            left += more
        if self._options.verify:
            switches, more = await self._verified(switches)
            left += more
        done: list[Switch] = []
        for switch in () if self._options.keep_references else switches:
            problem = await self._cluster.switch(switch)
            if problem is None:
                done.append(switch)
            else:
                left.append(problem)
        left += await self._cluster.remove(plan.obsolete) if plan.obsolete else []
        _report(replace(plan, converted=converted, switches=done, left=left), echo)
        return LEFT if left else DONE

    async def _created(self, plan: MigrationPlan) -> list[tuple[Converted, str]]:
        refused = await self._cluster.create(plan.converted)
        gone = {each.origin for each, _ in refused}
        return [*refused, *await self._cluster.unready([each for each in plan.converted if each.origin not in gone])]

    async def _verified(self, switches: Sequence[Switch]) -> tuple[list[Switch], list[Left]]:
        """Return the switches whose values are the same both ways, and say what was compared."""
        bad: dict[int, Left] = {}
        for switch, verdict in await probes.verify(self._cluster, self._inventory, switches):
            _print_verdict(verdict)
            if not verdict.good:
                why = verdict.problem or "its values are not the same both ways"
                bad.setdefault(id(switch), Left(switch.id, f"its references stay, because {verdict.user}: {why}"))
        return [switch for switch in switches if id(switch) not in bad], list(bad.values())


def _print_verdict(verdict: probes.Verdict) -> None:
    echo(f"{sign('✓' if verdict.good else '✗')} {printable(str(verdict.user))} read both ways")
    if verdict.problem:
        echo(f"    {printable(verdict.problem)}")
    for key, word in verdict.keys.items():
        echo(f"    {printable(key)}: {word}")


# --- report ----------------------------------------------------------------------------------------------------------


def _report(plan: MigrationPlan, write: Callable[[str], None]) -> None:
    for each in plan.converted:
        made = ", ".join(f"{id_of(obj)} of {id_of(obj).group}" for obj in each.objects)
        write(f"{sign('✓')} {printable(f'{each.origin} -> {made}')}")
    for switch in plan.switches:
        named = ", ".join(f"{site} -> {ref['kind']} {ref.get('name') or 'by label'}" for site, ref in switch.changes)
        write(f"{sign('✓')} {printable(f'{switch.id}: {named}')}")
    for left in plan.left:
        write(f"{sign('✗')} {printable(str(left))}")
    counted = f"{len(plan.converted)} stores and generators, references of {len(plan.switches)} objects"
    write(f"{counted}; {len(plan.left)} left")


def _warn(text: str) -> None:
    echo(f"eso migrate: {printable(text)}", err=True)


def _refuse(problem: str) -> int:
    _warn(problem)
    return UNUSABLE
