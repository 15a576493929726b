"""The action for an entry by policy, memory and answer; batches; the records of the status."""

import msgspec
import pytest

from eso_api.pushsecret import PushData
from eso_api.values import SecretBytes
from eso_operator.controllers.base import TerminatingNamespaces
from eso_operator.controllers.pushsecret import record
from eso_operator.controllers.pushsecret.checks import idle_data_to, wrong_data_to
from eso_operator.controllers.pushsecret.ownership import Footing, Patience, Pushes, RemovalLimits, Standing, Trial
from eso_operator.controllers.pushsecret.push import Action, Guarantee, Policy, batches, needed, waves
from eso_operator.controllers.pushsecret.record import (
    Known,
    LastPush,
    Learned,
    Place,
    PushSecretRecord,
    digest,
    value_digest,
)
from eso_operator.controllers.pushsecret.selection import Entry, select, selection_for
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.memory import Memory
from eso_operator.stores.loading import key_of
from eso_testkit.operator.pushsecrets import bulk, chosen, entry, push_secret, pushed, values
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CheckResult, KindId, Operation, PushItem, RemoteRef, SourceSecret
from eso_wire.values import Limits as CallLimits
from kubebase.clock import SystemClock
from kubebase.meta import Object
from kubebase.testing.clock import VirtualClock
from kuberun.cache import Cache
from kuberun.watch import Listed

ATOMIC = frozenset({Operation.PUSH, Operation.PUSH_IF_ABSENT})
BOTH = ATOMIC | {Operation.EXISTS}
ASKING = frozenset({Operation.PUSH, Operation.EXISTS})
PLAIN = frozenset({Operation.PUSH})
GROUPED = PLAIN | {Operation.PUSH_GROUPED}
NEW, OLD = b"new", b"old"
FAILED = CheckResult("1", error=ProviderError(ErrorReason.PERMISSION_DENIED, "no"))


def there(version: str = "") -> CheckResult:
    return CheckResult("1", exists=True, provider_version=version)


ABSENT = CheckResult("1", exists=False)


@pytest.mark.parametrize(
    ("policy", "operations", "known", "answer", "fate"),
    [
        pytest.param("Replace", BOTH, None, None, Action.PUSH, id="never pushed"),
        pytest.param("Replace", BOTH, Known(OLD, "v1"), None, Action.PUSH, id="another value"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), there("v1"), Action.KEEP, id="the same value, still there"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), there("v2"), Action.PUSH, id="changed by another writer, R2"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), ABSENT, Action.PUSH, id="deleted by another writer, R2"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), FAILED, Action.PUSH, id="it cannot be told"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), there(), Action.KEEP, id="no versions are told"),
        pytest.param(
            "Replace", BOTH, Known(NEW, ""), there("v1"), Action.KEEP, id="no version was told when it was pushed"
        ),
        pytest.param("Replace", PLAIN, Known(NEW, ""), None, Action.KEEP, id="nothing can be asked"),
        pytest.param("Replace", PLAIN, Known(OLD, ""), None, Action.PUSH, id="nothing can be asked, another value"),
        pytest.param("", BOTH, None, None, Action.PUSH, id="an empty policy replaces, R9"),
        pytest.param("IfNotExists", BOTH, None, None, Action.PUSH_IF_ABSENT, id="create only, R3"),
        pytest.param("IfNotExists", BOTH, Known(OLD, "v1"), there("v1"), Action.LEAVE, id="it is there, R3"),
        pytest.param(
            "IfNotExists", BOTH, Known(OLD, "v1"), there("v2"), Action.LEAVE, id="it is there and changed, R6"
        ),
        pytest.param("IfNotExists", BOTH, Known(OLD, "v1"), ABSENT, Action.PUSH_IF_ABSENT, id="it is gone"),
        pytest.param("IfNotExists", BOTH, Known(OLD, "v1"), FAILED, Action.PUSH_IF_ABSENT, id="the write will tell"),
        pytest.param("IfNotExists", ATOMIC, Known(OLD, ""), None, Action.PUSH_IF_ABSENT, id="asking is not needed"),
        pytest.param("IfNotExists", ASKING, None, there(), Action.LEAVE, id="checked: there"),
        pytest.param("IfNotExists", ASKING, None, ABSENT, Action.PUSH, id="checked: not there"),
    ],
)
def test_fate_of_an_entry(
    policy: str, operations: frozenset[Operation], known: Known | None, answer: CheckResult | None, fate: Action
) -> None:
    spec = msgspec.structs.replace(push_secret().spec, update_policy=policy)

    assert Policy.of(spec, operations).action(known, NEW, answer) is fate


LOST, FREED = Footing(Standing.LOST), Footing(Standing.FREED)


@pytest.mark.parametrize(
    ("operations", "known", "answer", "footing", "fate"),
    [
        pytest.param(BOTH, Known(NEW, "v1"), there("v2"), LOST, Action.YIELD, id="another PushSecret overwrote it"),
        pytest.param(BOTH, Known(NEW, "v1"), there("v9"), LOST, Action.YIELD, id="drift is left to the last writer"),
        pytest.param(BOTH, Known(NEW, "v1"), ABSENT, LOST, Action.PUSH, id="overwritten, then deleted by a stranger"),
        pytest.param(BOTH, Known(OLD, "v1"), None, LOST, Action.PUSH, id="overwritten, and ours changed"),
        pytest.param(PLAIN, Known(NEW, ""), None, LOST, Action.YIELD, id="overwritten, nothing can be asked"),
        pytest.param(BOTH, Known(NEW, "v1"), there("v1"), FREED, Action.PUSH, id="the other PushSecret withdrew"),
        pytest.param(PLAIN, Known(NEW, ""), None, FREED, Action.PUSH, id="it withdrew, nothing can be asked"),
        pytest.param(
            BOTH,
            Known(NEW, "v1"),
            there("v2"),
            Footing(expected=True),
            Action.KEEP,
            id="another PushSecret wrote another property",
        ),
        pytest.param(
            BOTH,
            Known(NEW, "v1"),
            there("v3"),
            Footing(expected=False),
            Action.PUSH,
            id="a stranger wrote after that",
        ),
    ],
)
def test_fate_of_an_entry_whose_remote_key_is_shared(
    operations: frozenset[Operation], known: Known, answer: CheckResult | None, footing: Footing, fate: Action
) -> None:
    assert Policy.of(push_secret().spec, operations).action(known, NEW, answer, footing) is fate


@pytest.mark.parametrize(
    ("policy", "operations", "known", "asks"),
    [
        pytest.param("Replace", BOTH, None, False, id="a first push asks nothing"),
        pytest.param("Replace", BOTH, Known(OLD, "v1"), False, id="what is pushed anyway is not asked for"),
        pytest.param("Replace", BOTH, Known(NEW, "v1"), True, id="what seems unchanged is asked for"),
        pytest.param("Replace", PLAIN, Known(NEW, "v1"), False, id="nothing can be asked"),
        pytest.param("IfNotExists", BOTH, None, False, id="create only needs no question"),
        pytest.param("IfNotExists", BOTH, Known(OLD, ""), True, id="a question instead of a write"),
        pytest.param("IfNotExists", ASKING, None, True, id="without create only, everything is asked for"),
    ],
)
def test_the_policy_and_the_known_version_decide_whether_the_provider_is_asked(
    policy: str, operations: frozenset[Operation], known: Known | None, asks: bool
) -> None:
    spec = msgspec.structs.replace(push_secret().spec, update_policy=policy)

    assert Policy.of(spec, operations).asks(known, NEW) is asks


@pytest.mark.parametrize(
    ("operations", "guarantee"),
    [
        pytest.param(BOTH, Guarantee.ATOMIC, id="create only"),
        pytest.param(ATOMIC, Guarantee.ATOMIC, id="create only, no questions"),
        pytest.param(ASKING, Guarantee.CHECKED, id="questions, no create only: weaker"),
        pytest.param(PLAIN, Guarantee.NONE, id="neither: not implemented, R7"),
    ],
)
def test_the_guarantee_of_if_not_exists_follows_the_operations_of_the_provider(
    operations: frozenset[Operation], guarantee: Guarantee
) -> None:
    assert Policy.of(push_secret(updatePolicy="IfNotExists").spec, operations).guarantee is guarantee


def test_operations_needed_follow_entries_and_policy() -> None:
    """R7: a policy that a provider cannot follow is found out before the first write."""
    one = push_secret(entry("user", "r"))
    whole = push_secret(entry("", "r"), deletionPolicy="Delete")
    source = values(user="u")

    assert needed(one.spec, select(selection_for(chosen(), one.spec, source))) == {Operation.PUSH}
    assert needed(whole.spec, select(selection_for(chosen(), whole.spec, source))) == {
        Operation.PUSH,
        Operation.PUSH_WHOLE_SECRET,
        Operation.DELETE,
    }


# --- calls ------------------------------------------------------------------------------------------------------------


def item(key: str, prop: str = "", size: int = 1) -> PushItem:
    return PushItem(f"{key}#{prop}", RemoteRef(key, property=prop), SecretBytes(b"x" * size))


def sizes(items: list[PushItem], limits: CallLimits, operations: frozenset[Operation] = PLAIN) -> list[int]:
    return [len(batch) for batch in batches(items, limits, operations)]


def test_everything_goes_in_one_call() -> None:
    assert sizes([item(str(number)) for number in range(500)], CallLimits()) == [500]


@pytest.mark.parametrize("operations", [PLAIN, GROUPED], ids=["one by one", "grouped"])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(CallLimits(max_batch_items=3), [3, 3, 1], id="by the provider's number of items"),
        pytest.param(CallLimits(max_message_bytes=4000), [2, 2, 2, 1], id="by the provider's size of a message"),
        pytest.param(CallLimits(max_batch_items=1000), [7], id="more than our own bound means our own bound"),
    ],
)
def test_calls_are_split_at_limits(limits: CallLimits, expected: list[int], operations: frozenset[Operation]) -> None:
    items = [item(str(number), size=1000) for number in range(7)]

    assert sizes(items, limits, operations) == expected


def test_an_item_larger_than_a_message_goes_alone_and_is_refused_there() -> None:
    assert sizes([item("a", size=9000), item("b")], CallLimits(max_message_bytes=4000)) == [1, 1]


def test_properties_of_one_remote_key_are_never_written_side_by_side() -> None:
    """A provider may work on the items of a call at once; two read-modify-writes of one value would lose one."""
    items = [item("a", "1"), item("a", "2"), item("b"), item("a", "3")]

    assert [[each.item_id for each in wave] for wave in waves(items)] == [["a#1", "b#"], ["a#2"], ["a#3"]]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(CallLimits(), [["a#1", "a#2", "a#3", "b#", "c#1", "c#2"]], id="all in one call"),
        pytest.param(
            CallLimits(max_batch_items=4), [["a#1", "a#2", "a#3", "b#"], ["c#1", "c#2"]], id="a key that does not fit"
        ),
        pytest.param(
            CallLimits(max_message_bytes=6000),
            [["a#1", "a#2", "a#3"], ["b#", "c#1", "c#2"]],
            id="a key that does not fit by size",
        ),
        pytest.param(
            CallLimits(max_batch_items=2),
            [["a#1", "a#2"], ["a#3", "b#"], ["c#1", "c#2"]],
            id="only a key that exceeds a call is split",
        ),
    ],
)
def test_properties_of_one_remote_key_go_together_to_a_provider_that_groups(
    limits: CallLimits, expected: list[list[str]]
) -> None:
    names = [("a", "1"), ("b", ""), ("a", "2"), ("c", "1"), ("a", "3"), ("c", "2")]
    items = [item(key, prop, size=1000) for key, prop in names]

    assert [[each.item_id for each in batch] for batch in batches(items, limits, GROUPED)] == expected


# --- memory -----------------------------------------------------------------------------------------------------------

PUSH = item("a")
SOURCE = SourceSecret("Opaque", {"l": "1"}, {})


@pytest.mark.parametrize(
    ("other", "source", "backend"),
    [
        pytest.param(item("a", size=2), SOURCE, "b", id="another value"),
        pytest.param(item("b"), SOURCE, "b", id="another key"),
        pytest.param(item("a", "p"), SOURCE, "b", id="another property"),
        pytest.param(
            PushItem("a#", RemoteRef("a"), SecretBytes(b"x"), {"kind": "M"}), SOURCE, "b", id="other metadata"
        ),
        pytest.param(PUSH, SourceSecret("kubernetes.io/tls", {"l": "1"}, {}), "b", id="another type"),
        pytest.param(PUSH, SourceSecret("Opaque", {"l": "2"}, {}), "b", id="another label"),
        pytest.param(PUSH, SOURCE, "c", id="another configuration of the store"),
    ],
)
def test_digests_tell_pushes_apart(other: PushItem, source: SourceSecret, backend: str) -> None:
    assert digest(PUSH, SOURCE, "b") == digest(item("a"), SOURCE, "b")
    assert digest(other, source, backend) != digest(PUSH, SOURCE, "b")


def test_digests_of_values_do_not_depend_on_where_they_come_from_or_go_to() -> None:
    whole = PushItem("1", RemoteRef("a"), values(value="x"))

    assert value_digest(PUSH) == value_digest(item("b", "p"))
    assert len({value_digest(PUSH), value_digest(item("a", size=2)), value_digest(whole)}) == 3


def test_parts_of_a_whole_secret_cannot_be_shifted_between_keys() -> None:
    one = PushItem("1", RemoteRef("a"), values(a="bc", d="e"))
    other = PushItem("1", RemoteRef("a"), values(a="b", cd="e"))

    assert digest(one, SOURCE, "") != digest(other, SOURCE, "")


def test_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    memory = Pushes(Memory(PushSecretRecord, 10), max_values=3)
    last = LastPush(SystemClock().now(), "1", frozenset(), frozenset())
    objects = [push_secret(metadata={"name": name}) for name in ("one", "two", "three")]
    for each in objects:
        known = {Place("s", f"{number}", ""): Known(b"", "") for number in range(2)}
        memory.recorded(each, Learned(last, known))

    assert [bool(memory.values(each)) for each in objects] == [False, False, True]


def test_memory_of_an_object_does_not_pass_to_another_of_its_name() -> None:
    memory = Pushes(Memory(PushSecretRecord))
    memory.wrote(push_secret(), {Place("s", "k", ""): Known(b"d", "")}, {"s": [pushed("k")]})

    assert memory.values(push_secret()) != {}
    assert memory.values(push_secret(metadata={"uid": "uid-2"})) == {}
    assert memory.unrecorded(push_secret(metadata={"uid": "uid-2"})) == {}


def test_a_pushed_value_is_remembered_until_the_status_records_it() -> None:
    memory, push = Pushes(Memory(PushSecretRecord)), push_secret()
    values = {Place("s", "one", ""): Known(b"1", ""), Place("s", "two", ""): Known(b"2", "")}

    memory.wrote(push, values, {"s": [pushed("one"), pushed("two")]})
    memory.removed(push, {"s": [record.Spot("one", "")]})
    assert memory.unrecorded(push) == {"s": [pushed("two")]}
    memory.recorded(push, None)

    assert memory.unrecorded(push) == {}
    assert memory.values(push) == {Place("s", "two", ""): Known(b"2", "")}
    assert memory.last(push) is None


# --- what the status keeps --------------------------------------------------------------------------------------------


def test_keys_of_the_status_are_those_of_the_existing_operator() -> None:
    entries, versions = record.recorded({"SecretStore/s": [pushed("a", version="v1"), pushed("a", "p")]})

    assert {store: sorted(each) for store, each in entries.items()} == {"SecretStore/s": ["a", "a/p"]}
    assert versions == {"SecretStore/s": {"a": "v1"}}


def test_two_places_whose_keys_look_the_same_are_both_kept() -> None:
    entries, _ = record.recorded({"s": [pushed("a/b"), pushed("a", "b")]})

    assert {record.spot_of(data) for data in entries["s"].values()} == {
        record.Spot("a/b", ""),
        record.Spot("a", "b"),
    }


def test_a_failed_push_keeps_old_and_new() -> None:
    """Otherwise entries would be orphaned."""
    both = record.union({"s": [pushed("new"), pushed("both", version="v2")]}, {"s": [pushed("both", version="v1")]})

    assert {(each.data.match.remote_ref.remote_key, each.version) for each in both["s"]} == {
        ("new", ""),
        ("both", "v1"),
    }


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param({"s": [pushed("a"), pushed("b", "p")]}, {}, id="nothing changed"),
        pytest.param({"s": [pushed("a")]}, {"s": ["b/p"]}, id="an entry is gone"),
        pytest.param({"s": [pushed("a"), pushed("b", "q")]}, {"s": ["b/p"]}, id="a property is another one"),
        pytest.param({"t": [pushed("a"), pushed("b", "p")]}, {"s": ["a", "b/p"]}, id="a store is another one"),
        pytest.param({}, {"s": ["a", "b/p"]}, id="nothing is wanted any more"),
    ],
)
def test_stale_entries(new: dict[str, list[record.Pushed]], expected: dict[str, list[str]]) -> None:
    """Seed 4."""
    old = {"s": [pushed("a"), pushed("b", "p")]}

    found = record.stale(new, old)

    assert {store: [record.entry_key(each) for each in entries] for store, entries in found.items()} == expected


def test_removed_entries_are_dropped_and_so_is_a_store_without_entries() -> None:
    old = {"s": [pushed("a"), pushed("b")], "t": [pushed("c")]}

    left = record.without(old, {"s": [record.Spot("a", "")], "t": [record.Spot("c", "")]})

    assert {store: [record.entry_key(each.data) for each in entries] for store, entries in left.items()} == {"s": ["b"]}


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        pytest.param(KindId("external-secrets.io", "v1", "SecretStore"), "SecretStore/x", id="v1"),
        pytest.param(
            KindId("secretstore.external-secrets.io", "v2alpha1", "SecretStore"),
            "secretstore.external-secrets.io/SecretStore/x",
            id="v2",
        ),
        pytest.param(KindId("aws.example.com", "v1", "Vault"), "aws.example.com/Vault/x", id="a provider's own kind"),
    ],
)
def test_keys_of_stores_tell_groups_apart(kind: KindId, key: str) -> None:
    assert key_of(kind, "x") == key
    assert record.split_key(key) == (kind.group, kind.kind, "x")


@pytest.mark.parametrize(
    ("rules", "refs", "path"),
    [
        pytest.param([bulk()], [{"name": "store"}], None, id="a store that is listed"),
        pytest.param([bulk("other")], [{"name": "store"}], "spec.dataTo[0].storeRef", id="one that is not listed, E4"),
        pytest.param(
            [bulk()],
            [{"name": "store", "kind": "ClusterSecretStore"}],
            "spec.dataTo[0].storeRef",
            id="one of another kind",
        ),
        pytest.param(
            [bulk()],
            [{"labelSelector": {"matchLabels": {"a": "b"}}}],
            "spec.dataTo[0].storeRef",
            id="a name where stores are selected by label",
        ),
        pytest.param([{}], [{"name": "store"}], "spec.dataTo[0].storeRef", id="no store at all"),
        pytest.param([bulk(), bulk(storeRef={})], [{"name": "store"}], "spec.dataTo[1].storeRef", id="no name"),
    ],
)
def test_stores_of_data_to_must_be_listed(rules: list[object], refs: list[object], path: str | None) -> None:
    wrong = wrong_data_to(push_secret(dataTo=rules, secretStoreRefs=refs).spec)

    assert (wrong.path if wrong is not None else None) == path


@pytest.mark.parametrize(
    ("selector", "idle"),
    [
        pytest.param({"matchLabels": {"team": "a"}}, False, id="a store has the label"),
        pytest.param({"matchLabels": {"team": "b"}}, True, id="no store has the label, E7"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Like"}]}, True, id="a selector that cannot be read"
        ),
    ],
)
def test_data_to_by_label_must_find_a_store(selector: object, idle: bool) -> None:
    push = push_secret(dataTo=[bulk(storeRef={"labelSelector": selector})])

    assert (idle_data_to(push.spec, [chosen(team="a")]) is not None) is idle


# --- patience ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "ends"),
    [
        pytest.param(Trial.GONE, True, id="a store that is gone is given up soon"),
        pytest.param(Trial.FINAL, False, id="a backend that is away gets more time"),
        pytest.param(Trial.STALE, False, id="an object that lives on has all the time there is"),
        pytest.param(Trial.OFF, False, id="a kind that is turned off has all the time there is"),
    ],
)
async def test_patience(trial: Trial, ends: bool) -> None:
    clock = VirtualClock()
    patience = Patience(
        clock,
        RemovalLimits(gone=RetryLimit(3, 5), failing=RetryLimit(10, 100)),
        Memory(PushSecretRecord),
        TerminatingNamespaces(Cache()),
    )

    verdicts = []
    for _ in range(4):
        verdicts.append(patience.is_over(push_secret().metadata, "store", trial))
        await clock.advance(2)

    assert verdicts == [False, False, False, ends]


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["stays", "ends"])
async def test_a_deletion_waits_for_a_kind_that_is_off_while_its_namespace_stays(metadata: dict[str, str]) -> None:
    """R153: in a namespace that ends, it waits no longer than for a backend that is away."""
    clock, namespaces = VirtualClock(), Cache[Object]()
    namespaces.apply(Listed((msgspec.convert({"metadata": {"name": "team-a", **metadata}}, Object),)))
    limits, memory = RemovalLimits(failing=RetryLimit(3, 5)), Memory(PushSecretRecord)
    patience, push = Patience(clock, limits, memory, TerminatingNamespaces(namespaces)), push_secret().metadata

    verdicts = []
    for _ in range(4):
        verdicts.append(patience.is_over(push, "store", Trial.OFF))
        await clock.advance(2)

    assert push.namespace == "team-a"
    assert verdicts == [False, False, False, bool(metadata)]


async def test_patience_is_with_one_object_and_ends_with_it() -> None:
    """A PushSecret that is gone claims nothing, and nothing against another of its name."""
    clock, first, second = VirtualClock(), push_secret().metadata, push_secret(metadata={"uid": "uid-2"}).metadata
    patience = Patience(
        clock, RemovalLimits(gone=RetryLimit(2, 0)), Memory(PushSecretRecord), TerminatingNamespaces(Cache())
    )

    patience.is_over(first, "store", Trial.GONE)
    another = patience.is_over(second, "store", Trial.GONE)
    patience.forget(second.key)

    assert (another, len(patience)) == (False, 0)


def test_an_entry_shows_no_value() -> None:
    shown = repr(Entry("spec.data[0]", msgspec.convert(entry("k", "r"), PushData), SecretBytes(b"CANARY")))

    assert "CANARY" not in shown
