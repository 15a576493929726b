"""Which providers the objects need, who serves them, and which objects depend on each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.kinds import KINDS
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET, PushSecret, PushStoreRef
from eso_api.references import GENERATORS_GROUP, SelectorError
from eso_api.stores.projectproviders import GENERATORS, REMOVED_UPSTREAM, STORES
from eso_operator.stores.resolved import Reason
from eso_tools.objects import Role as KindRole
from eso_tools.objects import role_of
from eso_tools.preflight.findings import CheckResult, Detail, Findings, Level, counted
from eso_tools.preflight.snapshot import Running, Snapshot, Stored, WorkloadRole
from eso_tools.providers import Want, wanted_by
from eso_tools.status.overview import ObjectId, row_of
from kubebase.meta import meta_of

USERS: Final = (EXTERNAL_SECRET, CLUSTER_EXTERNAL_SECRET, PUSH_SECRET, CLUSTER_PUSH_SECRET)
SOURCES: Final = frozenset({KindRole.STORE, KindRole.GENERATOR})
"""The kinds that need a provider."""


@dataclass(slots=True)
class ProviderNeed:
    """One kind or key that a provider must serve: the stores and generators, and the objects that use them."""

    want: Want
    sources: list[Stored] = field(default_factory=list)
    users: dict[str, Stored] = field(default_factory=dict)

    def __str__(self) -> str:
        match self.want:
            case Want("", key):
                return f"spec.provider.{key}"
            case Want(group, kind) if group == GENERATORS_GROUP:
                return f"generator {kind}"
            case Want(group, kind):
                return f"{kind}.{group}"

    @property
    def counts(self) -> str:
        """Return how many objects depend on it: `2 stores, 1 generator, 7 ExternalSecrets`."""
        stores = sum(role_of(each.custom) is KindRole.STORE for each in self.sources)
        parts = [(stores, "store"), (len(self.sources) - stores, "generator")]
        parts += [(sum(each.custom == custom for each in self.users.values()), custom.name) for custom in USERS]
        return ", ".join(counted(number, name) for number, name in parts if number)

    @property
    def details(self) -> tuple[Detail, ...]:
        return tuple(Detail(str(each)) for each in (*self.sources, *self.users.values()))


def providers(snapshot: Snapshot) -> Findings:
    """Compare the providers that are needed with those that are installed or run."""
    needs = needs_of(snapshot.objects)
    installed: dict[str, list[ProviderNeed]] = {}
    for need in needs:
        running = [each for each in snapshot.running if _runs(each, need.want, snapshot.packages)]
        package = snapshot.packages.get(need.want, "")
        if running:
            where = ", ".join(each.what for each in running)
            yield CheckResult(Level.FACT, f"{need}: {where} serves it ({need.counts})")
        elif package:
            installed.setdefault(package, []).append(need)
        else:
            yield _missing(need)
    if installed:
        yield _to_enable(installed, snapshot)
    yield from _maturity(needs, snapshot)
    if not needs and all(snapshot.sees(custom.resource()) for custom in KINDS if role_of(custom) in SOURCES):
        yield CheckResult(Level.FACT, "no store or generator needs a provider yet")


def needs_of(objects: Iterable[Stored]) -> list[ProviderNeed]:
    """Return what the stores and generators need, by name, each with its users."""
    found = list(objects)
    needs: dict[Want, ProviderNeed] = {}
    by_source: dict[ObjectId, ProviderNeed] = {}
    sources = [each for each in found if role_of(each.custom) in SOURCES]
    for each in sources:
        if (want := wanted_by(each.obj)) is not None:
            need = needs.setdefault(want, ProviderNeed(want))
            need.sources.append(each)
            by_source[_identity(each)] = need
    for user in found:
        if user.custom in USERS:
            for source in _used_by(user, sources):
                if source in by_source:
                    by_source[source].users.setdefault(f"{user}", user)
    return sorted(needs.values(), key=lambda need: (need.want.group, need.want.name))


def _runs(running: Running, want: Want, packages: Mapping[Want, str]) -> bool:
    """Return whether a provider in the cluster serves it; a Service that announces nothing counts by its name."""
    return want in running.serves or (not running.serves and running.name in {packages.get(want), project_name(want)})


def project_name(want: Want) -> str | None:
    """Return the provider of this project that serves it, installed or not; None if there is none."""
    return STORES.get(want.name) if not want.group else _generator(want)


def _generator(want: Want) -> str | None:
    return GENERATORS.get(want.name) if want.group == GENERATORS_GROUP else None


def _to_enable(needs: Mapping[str, list[ProviderNeed]], snapshot: Snapshot) -> CheckResult:
    """Return one finding for all providers that are needed and available."""
    names = sorted(needs)
    details = tuple(
        Detail(f"provider {name}", text=", ".join(f"{need} ({need.counts})" for need in needs[name])) for name in names
    )
    enable = ",".join(f"providers.{name}.enabled=true" for name in names)
    advice = f"enable them in our chart: --set {enable}; without the chart, start `eso provider serve NAME` for each"
    if snapshot.of(WorkloadRole.OURS):
        text = (
            f"{counted(len(names), 'provider')} needed that this cluster does not run: objects that need it {_REPORT}"
        )
        return CheckResult(Level.WARNING, text, details, advice)
    return CheckResult(Level.FACT, f"{counted(len(names), 'provider')} needed, which this project has", details, advice)


def _maturity(needs: Iterable[ProviderNeed], snapshot: Snapshot) -> Findings:
    """Say of each needed provider that is not stable how far it was tested."""
    by_package: dict[str, list[ProviderNeed]] = {}
    for need in needs:
        by_package.setdefault(snapshot.packages.get(need.want, ""), []).append(need)
    for package, its in sorted(by_package.items()):
        details = tuple(Detail(str(need), text=need.counts) for need in its)
        match snapshot.maturities.get(package):
            case "unproven":
                text = f"provider {package} is unproven: it has only run against a stand-in of its service"
                yield CheckResult(Level.WARNING, text, details, "try it with unimportant values before you migrate")
            case "beta":
                text = f"provider {package} is beta: it is not tested against its service with each change"
                yield CheckResult(Level.FACT, text, details)
            case _:
                continue


def _missing(need: ProviderNeed) -> CheckResult:
    name = project_name(need.want)
    if name is not None:
        text = f"{need}: provider {name} is not installed beside eso ({need.counts}): its kinds could not be checked"
        advice = (
            f"install the package eso-provider-{name} beside eso and run this command again; in our chart, enable it:"
            f" --set providers.{name}.enabled=true"
        )
        return CheckResult(Level.WARNING, text, need.details, advice)
    if not need.want.group and need.want.name in REMOVED_UPSTREAM:
        text = f"{need}: upstream removed this backend, and it is not available here ({need.counts}); {_CONSEQUENCE}"
        return CheckResult(
            Level.BLOCKER, text, need.details, "move the values to another backend, and change spec.provider"
        )
    text = f"{need}: this project has no provider for it yet ({need.counts}); {_CONSEQUENCE}"
    advice = "do not migrate before it has one: write the provider (eso provider new NAME), or use another backend"
    return CheckResult(Level.BLOCKER, text, need.details, advice)


_REPORT: Final = f"report {Reason.NOT_INSTALLED.value}, and their Secrets stay as they are, unrefreshed"
_CONSEQUENCE: Final = f"they would {_REPORT}"


def _identity(stored: Stored) -> ObjectId:
    return ObjectId(stored.custom.group, stored.custom.name, stored.key)


def _used_by(user: Stored, sources: Iterable[Stored]) -> Iterator[ObjectId]:
    try:
        typed: Any = msgspec.convert(user.obj, user.custom.type)
    except msgspec.ValidationError:
        return  # the check of objects reports it
    yield from row_of(user.custom, typed).needs
    if isinstance(typed, PushSecret):
        for ref in typed.spec.secret_store_refs:
            yield from _selected(ref, typed.metadata.namespace, sources)


def _selected(ref: PushStoreRef, namespace: str, sources: Iterable[Stored]) -> Iterator[ObjectId]:
    """Yield the stores that a PushSecret selects by label."""
    if ref.label_selector is None:
        return
    group, kind = ref.group_kind
    for store in sources:
        if (store.custom.group, store.custom.name) != (group, kind) or store.key.namespace not in {"", namespace}:
            continue
        try:
            if ref.label_selector.matches(meta_of(store.obj).labels):
                yield _identity(store)
        except SelectorError:
            return
