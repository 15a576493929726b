"""The inputs of one reconcile, and the record that is kept between two."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.externalsecret.snapshot import Rules, SnapshotGatherer, sources_of
from eso_operator.controllers.refresh import LastSync, current_version
from eso_operator.dependencies import OnObject
from eso_operator.memory import Memory
from eso_operator.sources.entries import references_of
from eso_operator.sources.templates import TemplateVersion
from eso_operator.targets.metadata import GeneratedMark, marked
from eso_operator.targets.target import (
    Absent,
    Applied,
    CreateTarget,
    Present,
    Target,
    TargetChange,
    TargetState,
    UpdateTarget,
)
from eso_render.secret import Values
from eso_render.templates import TemplateObjects
from eso_testkit.operator.externalsecrets import external_secret, intact, synced
from kubebase.clock import rfc3339
from kubebase.meta import ObjectKey, ObjectMeta
from kubebase.testing.clock import START
from kuberun.cache import Cache
from kuberun.controller import ReconcileContext
from kuberun.errors import Unreachable

HOUR = timedelta(hours=1)


def at(now: datetime) -> ReconcileContext:
    return ReconcileContext(now)


@dataclass
class Cluster:
    """The cluster that a gatherer sees."""

    classes: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    memory: Memory[ExternalSecretRecord] = field(default_factory=lambda: Memory(ExternalSecretRecord))

    def gatherer(self) -> SnapshotGatherer:
        return SnapshotGatherer(
            Cache(),
            self._class_of,
            self.memory,
            version_of=lambda _kind, key: self.versions.get(key.name, ""),
            notified_at=lambda key: self.before.get(key.name),
            rules=self.rules,
        )

    def _class_of(self, ref: StoreRef | GeneratorRef, namespace: str) -> str | None:
        assert namespace == "default"
        return self.classes.get(ref.name)


class Counted(Target):
    """A target that counts how often it was read."""

    def __init__(self) -> None:
        self.times = 0

    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        del es, live
        self.times += 1
        return intact()

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        raise NotImplementedError

    async def apply(self, es: ExternalSecret, change: CreateTarget | UpdateTarget) -> Applied:
        raise NotImplementedError

    async def delete(self, es: ExternalSecret) -> bool:
        raise NotImplementedError


async def test_a_sync_counts_although_it_was_not_written() -> None:
    gatherer, es = Cluster().gatherer(), synced(external_secret(), START)

    gatherer.remember(es, START + HOUR, frozenset())

    assert (await gatherer.gather(es, Counted(), at(START + HOUR))).last == LastSync(START + HOUR, current_version(es))


async def test_values_that_end_are_remembered_with_their_end() -> None:
    """R24."""
    gatherer, es = Cluster().gatherer(), synced(external_secret(), START)

    gatherer.remember(es, START + HOUR, frozenset(), renew_within=600.0)

    assert (await gatherer.gather(es, Counted(), at(START + HOUR))).last.renew_at == START + HOUR + timedelta(
        minutes=10
    )


async def test_a_status_that_may_have_been_written_decides_about_a_sync_of_the_same_second() -> None:
    """The response to the second write of that second was lost. The status has no fraction of a second."""
    gatherer, edited = Cluster().gatherer(), external_secret(metadata={"annotations": {"edited": "1"}})
    gatherer.remember(external_secret(), START + timedelta(milliseconds=300), frozenset())

    gatherer.forget_last(edited)

    found = await gatherer.gather(synced(edited, START), Counted(), at(START + timedelta(seconds=1)))
    assert found.last == LastSync(START, current_version(edited))


async def test_once_synced_it_waits_for_no_turn() -> None:
    gatherer, es = Cluster().gatherer(), synced(external_secret(), START)
    assert (await gatherer.gather(es, Counted(), at(START + 3 * HOUR))).restart_slot is not None

    gatherer.remember(es, START + 3 * HOUR, frozenset())

    assert (await gatherer.gather(es, Counted(), at(START + HOUR))).restart_slot is None


async def test_the_status_counts_if_it_is_newer_than_the_record() -> None:
    """Another writer may have synced it meanwhile, say another leader."""
    gatherer, es = Cluster().gatherer(), external_secret()
    gatherer.remember(es, START, frozenset())

    newer = synced(es, START + HOUR)

    assert (await gatherer.gather(newer, Counted(), at(START + HOUR))).last.at == START + HOUR


async def test_an_object_of_the_same_name_is_another_one() -> None:
    gatherer = Cluster().gatherer()
    gatherer.remember(external_secret(metadata={"uid": "first"}), START, frozenset())

    snapshot = await gatherer.gather(external_secret(metadata={"uid": "second"}), Counted(), at(START))

    assert snapshot.last == LastSync(None, "")
    assert snapshot.first_reconcile


async def test_a_forgotten_object_is_new() -> None:
    cluster, es = Cluster(), external_secret()
    gatherer = cluster.gatherer()
    gatherer.remember(es, START, frozenset())

    cluster.memory.forget(es.key)

    assert (await gatherer.gather(es, Counted(), at(START))).last == LastSync(None, "")


async def test_only_the_first_look_gives_an_overdue_refresh_its_turn() -> None:
    gatherer, es = Cluster().gatherer(), synced(external_secret(), START)

    first = await gatherer.gather(es, Counted(), at(START + 2 * HOUR))
    second = await gatherer.gather(es, Counted(), at(START + 3 * HOUR))

    assert (first.first_reconcile, second.first_reconcile) == (True, False)
    assert first.restart_slot is not None
    assert first.restart_slot > START + 2 * HOUR
    assert second.restart_slot == first.restart_slot


async def test_a_look_that_fails_is_none() -> None:
    """Metrics show an object at its first reconcile: one whose target could not be read must not count as the first."""

    class Away(Counted):
        async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
            del live
            raise Unreachable(f"{es.key}: away")

    gatherer, es = Cluster().gatherer(), synced(external_secret(), START)

    with pytest.raises(Unreachable):
        await gatherer.gather(es, Away(), at(START))

    assert (await gatherer.gather(es, Counted(), at(START))).first_reconcile


async def test_templates_are_new_when_their_version_is_another_one() -> None:
    cluster, es = Cluster(versions={"shared": "1"}), external_secret()
    gatherer = cluster.gatherer()
    gatherer.remember(es, START, frozenset({TemplateVersion("ConfigMap", ObjectKey("default", "shared"), "1")}))

    same = await gatherer.gather(es, Counted(), at(START))
    cluster.versions["shared"] = "2"
    other = await gatherer.gather(es, Counted(), at(START))
    del cluster.versions["shared"]
    gone = await gatherer.gather(es, Counted(), at(START))

    assert (same.new_templates, other.new_templates, gone.new_templates) == (False, True, False)


async def test_one_store_of_another_class_leaves_the_object_to_another_operator() -> None:
    """Even behind a ClusterSecretStore, and even if it is the default that no entry uses."""
    theirs = {"secretKey": "b", "remoteRef": {"key": "b"}, "sourceRef": {"storeRef": {"name": "theirs"}}}
    behind = external_secret(secretStoreRef={"name": "ours", "kind": "ClusterSecretStore"}, data=[theirs])
    unused = external_secret(
        secretStoreRef={"name": "theirs"}, data=[{**theirs, "sourceRef": {"storeRef": {"name": "x"}}}]
    )
    gatherer = Cluster(classes={"ours": "default", "theirs": "another"}).gatherer()

    for es in (behind, unused):
        assert (await gatherer.gather(es, Counted(), at(START))).foreign_class == "SecretStore theirs"


async def test_stores_without_a_class_and_missing_stores_do_not_stop_the_reconcile() -> None:
    gatherer = Cluster(classes={"store": ""}).gatherer()

    assert (await gatherer.gather(external_secret(), Counted(), at(START))).foreign_class == ""
    assert (
        await gatherer.gather(external_secret(secretStoreRef={"name": "none"}), Counted(), at(START))
    ).foreign_class == ""


async def test_a_target_of_a_forbidden_kind_is_not_read() -> None:
    es = external_secret(target={"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}})
    target = Counted()

    hidden = await Cluster().gatherer().gather(es, target, at(START))
    assert (hidden.target, target.times) == (Absent(), 0)
    await Cluster(rules=Rules(generic_targets=True)).gatherer().gather(es, target, at(START))

    assert target.times == 1


def test_sources_are_everything_the_object_names() -> None:
    items = [{"key": "t"}]
    es = external_secret(
        secretStoreRef={"name": "v2", "kind": "SecretStore", "apiVersion": "external-secrets.io/v2alpha1"},
        data=[{"secretKey": "b", "remoteRef": {"key": "b"}, "sourceRef": {"storeRef": {"name": "own"}}}],
        dataFrom=[{"sourceRef": {"generatorRef": {"kind": "Password", "name": "maker"}}}],
        target={
            "name": "out",
            "manifest": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "template": {
                "templateFrom": [
                    {"configMap": {"name": "map", "items": items}},
                    {"secret": {"name": "sec", "items": items}},
                ]
            },
        },
    )

    found = {(on.group, on.kind, on.key.name) for on in sources_of(es) if isinstance(on, OnObject)}

    assert [ref.name for ref in references_of(es.spec)] == ["v2", "own", "maker"]
    assert found == {
        ("external-secrets.io", "SecretStore", "v2"),
        ("external-secrets.io", "SecretStore", "own"),
        ("generators.external-secrets.io", "Password", "maker"),
        ("example.com", "Widget", "out"),
        ("", "ConfigMap", "map"),
        ("", "Secret", "sec"),
    }


async def test_an_announced_change_is_part_of_the_snapshot() -> None:
    gatherer, es = Cluster(before={"db": 7.0}).gatherer(), synced(external_secret(), START)

    assert (await gatherer.gather(es, Counted(), at(START))).notified_at == 7.0


# --- generated values -------------------------------------------------------------------------------------------------


class Holding(Counted):
    """A target with generated values. The cache may lack them."""

    def __init__(self, mark: GeneratedMark, *, cached: bool = True, valid: bool = True) -> None:
        super().__init__()
        self.mark, self.cached, self.valid = mark, cached, valid

    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        if not live and not self.cached:
            return Absent()
        annotations = marked(es, {}, self.mark, unchanged=False)
        return Present(ObjectMeta(name="db", namespace="default", annotations=annotations), self.valid)


def mark(at: datetime, version: str = "", **fields: Any) -> GeneratedMark:
    return GeneratedMark(time=rfc3339(at), version=version or current_version(external_secret()), **fields)


async def test_a_target_that_was_generated_after_the_last_status_counts() -> None:
    es, made = external_secret(), mark(START, renew_time=rfc3339(START + HOUR))

    seen = await Cluster().gatherer().gather(es, Holding(made), at(START))

    assert seen.last == LastSync(START, current_version(es), START + HOUR)
    assert (seen.unreported, seen.generated) == (True, made)


@pytest.mark.parametrize(
    ("status_at", "made_at"),
    [
        pytest.param(START, START, id="of the same sync"),
        pytest.param(START + HOUR, START, id="of a later sync"),
    ],
)
async def test_a_status_that_has_the_sync_is_right(status_at: datetime, made_at: datetime) -> None:
    es = synced(external_secret(), status_at)

    seen = await Cluster().gatherer().gather(es, Holding(mark(made_at)), at(START + 2 * HOUR))

    assert not seen.unreported
    assert seen.last.at == status_at


async def test_syncs_of_the_same_second_are_told_apart_by_their_version() -> None:
    """A status has whole seconds."""
    before = synced(external_secret(), START)
    es = msgspec.structs.replace(external_secret(metadata={"generation": 2}), status=before.status)

    seen = await Cluster().gatherer().gather(es, Holding(mark(START, current_version(es))), at(START))
    other = await Cluster().gatherer().gather(es, Holding(mark(START, "0-older")), at(START))

    assert (seen.unreported, seen.last.version) == (True, current_version(es))
    assert (other.unreported, other.last.version) == (False, before.status.synced_resource_version)


async def test_a_sync_that_this_process_remembers_from_the_same_second_is_not_later_than_the_target() -> None:
    """The memory has fractions of a second, a target has not."""
    before = synced(external_secret(), START)
    es = msgspec.structs.replace(external_secret(metadata={"generation": 2}), status=before.status)
    gatherer = Cluster().gatherer()
    gatherer.remember(before, START + timedelta(milliseconds=300), frozenset())

    seen = await gatherer.gather(es, Holding(mark(START, current_version(es))), at(START + timedelta(milliseconds=900)))

    assert (seen.unreported, seen.last.version) == (True, current_version(es))


async def test_an_edited_target_says_nothing_of_generated_values() -> None:
    seen = await Cluster().gatherer().gather(external_secret(), Holding(mark(START), valid=False), at(START))

    assert (seen.unreported, seen.generated, seen.last.at) == (False, None, None)


async def test_values_that_the_cache_lacks_are_found_before_others_are_generated() -> None:
    gatherer, target = Cluster().gatherer(), Holding(mark(START), cached=False)

    cached = await gatherer.gather(external_secret(), target, at(START))
    live = await gatherer.confirmed(cached, target)

    assert (cached.unreported, live.unreported) == (False, True)


async def test_templates_and_announced_changes_of_a_lost_status_are_not_used_again() -> None:
    """Otherwise they would be a reason to generate once more."""
    cluster, made = Cluster(), mark(START)
    cluster.versions["app"], cluster.before["db"] = "2", 7.0
    gatherer, es = cluster.gatherer(), synced(external_secret(), START - HOUR)
    gatherer.remember(es, START - HOUR, frozenset({TemplateVersion("ConfigMap", ObjectKey("default", "app"), "1")}))
    due = await gatherer.gather(es, Counted(), at(START))
    gatherer.writing(due, made, frozenset({TemplateVersion("ConfigMap", ObjectKey("default", "app"), "2")}))

    lost = await gatherer.gather(es, Counted(), at(START))
    found = await gatherer.gather(es, Holding(made), at(START))

    assert (due.new_templates, due.notified_at) == (True, 7.0)
    assert (lost.new_templates, lost.notified_at) == (True, 7.0)
    assert (found.new_templates, found.notified_at) == (False, None)
