"""The action for an entry by policy, memory and answer; batches; the records of the status."""

import msgspec
import pytest

from eso_api.pushsecret import PushData
from eso_api.values import SecretBytes
from eso_operator.controllers.base import TerminatingNamespaces
from eso_operator.controllers.pushsecret.checks import data_to_unlisted_store, unmatched_data_to
from eso_operator.controllers.pushsecret.ownership import Decision, RemovalAttempts, Writes
from eso_operator.controllers.pushsecret.push import (
    Action,
    Guarantee,
    Policy,
    batches,
    digest,
    needed,
    value_digest,
    waves,
)
from eso_operator.controllers.pushsecret.record import (
    LastPush,
    PushSecretRecord,
    RemoteKey,
    RemoteValue,
    entries_of,
    entry_key,
    split_key,
    status_fields,
    without,
)
from eso_operator.controllers.pushsecret.selection import Entry, select, selection_for
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot
from eso_operator.controllers.pushsecret.status import PushFailed
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.memory import Memory
from eso_operator.stores.loading import key_of
from eso_operator.stores.resolved import Reason
from eso_testkit.operator.pushsecrets import bulk, chosen, entry, push_secret, pushed, values
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CheckResult, KindId, Operation, PushItem, RemoteRef, SourceSecret
from eso_wire.values import Limits as CallLimits
from kubebase.clock import Clock, SystemClock
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
    ("policy", "operations", "known", "answer", "action"),
    [
        pytest.param("Replace", BOTH, None, None, Action.PUSH, id="never pushed"),
        pytest.param("Replace", BOTH, RemoteValue(OLD, "v1"), None, Action.PUSH, id="another value"),
        pytest.param(
            "Replace", BOTH, RemoteValue(NEW, "v1"), there("v1"), Action.KEEP, id="the same value, still there"
        ),
        pytest.param(
            "Replace", BOTH, RemoteValue(NEW, "v1"), there("v2"), Action.PUSH, id="changed by another writer, R2"
        ),
        pytest.param("Replace", BOTH, RemoteValue(NEW, "v1"), ABSENT, Action.PUSH, id="deleted by another writer, R2"),
        pytest.param("Replace", BOTH, RemoteValue(NEW, "v1"), FAILED, Action.PUSH, id="it cannot be told"),
        pytest.param("Replace", BOTH, RemoteValue(NEW, "v1"), there(), Action.KEEP, id="no versions are told"),
        pytest.param(
            "Replace", BOTH, RemoteValue(NEW, ""), there("v1"), Action.KEEP, id="no version was told when it was pushed"
        ),
        pytest.param("Replace", PLAIN, RemoteValue(NEW, ""), None, Action.KEEP, id="nothing can be asked"),
        pytest.param(
            "Replace", PLAIN, RemoteValue(OLD, ""), None, Action.PUSH, id="nothing can be asked, another value"
        ),
        pytest.param("", BOTH, None, None, Action.PUSH, id="an empty policy replaces, R9"),
        pytest.param("IfNotExists", BOTH, None, None, Action.PUSH_IF_ABSENT, id="create only, R3"),
        pytest.param("IfNotExists", BOTH, RemoteValue(OLD, "v1"), there("v1"), Action.LEAVE, id="it is there, R3"),
        pytest.param(
            "IfNotExists", BOTH, RemoteValue(OLD, "v1"), there("v2"), Action.LEAVE, id="it is there and changed, R6"
        ),
        pytest.param("IfNotExists", BOTH, RemoteValue(OLD, "v1"), ABSENT, Action.PUSH_IF_ABSENT, id="it is gone"),
        pytest.param(
            "IfNotExists", BOTH, RemoteValue(OLD, "v1"), FAILED, Action.PUSH_IF_ABSENT, id="the write will tell"
        ),
        pytest.param(
            "IfNotExists", ATOMIC, RemoteValue(OLD, ""), None, Action.PUSH_IF_ABSENT, id="asking is not needed"
        ),
        pytest.param("IfNotExists", ASKING, None, there(), Action.LEAVE, id="checked: there"),
        pytest.param("IfNotExists", ASKING, None, ABSENT, Action.PUSH, id="checked: not there"),
    ],
)
def test_action_of_an_entry(
    policy: str, operations: frozenset[Operation], known: RemoteValue | None, answer: CheckResult | None, action: Action
) -> None:
    spec = msgspec.structs.replace(push_secret().spec, update_policy=policy)

    assert Policy.of(spec, operations).action(known, NEW, answer) is action


YIELD, AGAIN = Decision.YIELD, Decision.PUSH_AGAIN


@pytest.mark.parametrize(
    ("operations", "known", "answer", "others", "action"),
    [
        pytest.param(
            BOTH, RemoteValue(NEW, "v1"), there("v2"), YIELD, Action.YIELD, id="another PushSecret overwrote it"
        ),
        pytest.param(
            BOTH, RemoteValue(NEW, "v1"), there("v9"), YIELD, Action.YIELD, id="drift is left to the last writer"
        ),
        pytest.param(
            BOTH, RemoteValue(NEW, "v1"), ABSENT, YIELD, Action.PUSH, id="overwritten, then deleted by a stranger"
        ),
        pytest.param(BOTH, RemoteValue(OLD, "v1"), None, YIELD, Action.PUSH, id="overwritten, and ours changed"),
        pytest.param(PLAIN, RemoteValue(NEW, ""), None, YIELD, Action.YIELD, id="overwritten, nothing can be asked"),
        pytest.param(BOTH, RemoteValue(NEW, "v1"), there("v1"), AGAIN, Action.PUSH, id="the other PushSecret withdrew"),
        pytest.param(PLAIN, RemoteValue(NEW, ""), None, AGAIN, Action.PUSH, id="it withdrew, nothing can be asked"),
        pytest.param(
            BOTH,
            RemoteValue(NEW, "v1"),
            there("v2"),
            True,
            Action.KEEP,
            id="another PushSecret wrote another property",
        ),
        pytest.param(
            BOTH,
            RemoteValue(NEW, "v1"),
            there("v3"),
            False,
            Action.PUSH,
            id="a stranger wrote after that",
        ),
    ],
)
def test_action_of_an_entry_whose_remote_key_is_shared(
    operations: frozenset[Operation],
    known: RemoteValue,
    answer: CheckResult | None,
    others: Decision | bool,
    action: Action,
) -> None:
    decision = others if isinstance(others, Decision) else Decision.KEEP
    policy = Policy.of(push_secret().spec, operations)

    assert policy.action(known, NEW, answer, decision, expected=others is True) is action


@pytest.mark.parametrize(
    ("policy", "operations", "known", "asks"),
    [
        pytest.param("Replace", BOTH, None, False, id="a first push asks nothing"),
        pytest.param("Replace", BOTH, RemoteValue(OLD, "v1"), False, id="what is pushed anyway is not asked for"),
        pytest.param("Replace", BOTH, RemoteValue(NEW, "v1"), True, id="what seems unchanged is asked for"),
        pytest.param("Replace", PLAIN, RemoteValue(NEW, "v1"), False, id="nothing can be asked"),
        pytest.param("IfNotExists", BOTH, None, False, id="create only needs no question"),
        pytest.param("IfNotExists", BOTH, RemoteValue(OLD, ""), True, id="a question instead of a write"),
        pytest.param("IfNotExists", ASKING, None, True, id="without create only, everything is asked for"),
    ],
)
def test_the_policy_and_the_known_version_decide_whether_the_provider_is_asked(
    policy: str, operations: frozenset[Operation], known: RemoteValue | None, asks: bool
) -> None:
    spec = msgspec.structs.replace(push_secret().spec, update_policy=policy)

    assert Policy.of(spec, operations).checks(known, NEW) is asks


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
    writes = Writes(Memory(PushSecretRecord, 10), max_values=3)
    last = LastPush(SystemClock().now(), "1", frozenset(), frozenset())
    objects = [push_secret(metadata={"name": name}) for name in ("one", "two", "three")]
    for each in objects:
        writes.recorded(each, last, {RemoteKey("s", f"{number}", ""): RemoteValue(b"", "") for number in range(2)})

    assert [bool(writes.values(each)) for each in objects] == [False, False, True]


def test_memory_of_an_object_does_not_pass_to_another_of_its_name() -> None:
    writes = Writes(Memory(PushSecretRecord))
    writes.wrote(push_secret(), {RemoteKey("s", "k", ""): RemoteValue(b"d", "")}, pushed("k"))

    assert writes.values(push_secret()) != {}
    assert writes.values(push_secret(metadata={"uid": "uid-2"})) == {}
    assert writes.unrecorded(push_secret(metadata={"uid": "uid-2"})) == {}


def test_a_pushed_value_is_remembered_until_the_status_records_it() -> None:
    writes, push = Writes(Memory(PushSecretRecord)), push_secret()
    one, two = pushed("one", "two")

    writes.wrote(push, {one: RemoteValue(b"1", ""), two: RemoteValue(b"2", "")}, pushed("one", "two"))
    writes.removed(push, {one})
    assert writes.unrecorded(push) == pushed("two")
    writes.recorded(push)

    assert writes.unrecorded(push) == {}
    assert writes.values(push) == {two: RemoteValue(b"2", "")}
    assert writes.last(push) is None


# --- what the status keeps --------------------------------------------------------------------------------------------


def test_keys_of_the_status_are_those_of_the_existing_operator() -> None:
    fields = status_fields(pushed("a", store="SecretStore/s", version="v1") | pushed(("a", "p"), store="SecretStore/s"))

    entries = fields["synced_push_secrets"]
    assert {store: sorted(each) for store, each in entries.items()} == {"SecretStore/s": ["a", "a/p"]}
    assert fields["synced_versions"] == {"SecretStore/s": {"a": "v1"}}


def test_two_remote_keys_whose_entry_keys_look_the_same_are_both_kept() -> None:
    entries = pushed("a/b", ("a", "b"), version="v1")
    status = msgspec.structs.replace(push_secret().status, **status_fields(entries))

    assert entries_of(status) == entries


def test_entries_that_are_gone_are_dropped() -> None:
    """Seed 4: what is left after a push is no longer wanted."""
    old = pushed("a", ("b", "p"))

    def left(*wanted: str | tuple[str, str], store: str = "SecretStore/store") -> list[str]:
        return [entry_key(each.data) for each in without(old, pushed(*wanted, store=store).keys()).values()]

    assert left("a", ("b", "p")) == []
    assert left("a") == ["b/p"]
    assert left("a", ("b", "q")) == ["b/p"]
    assert left("a", ("b", "p"), store="SecretStore/other") == ["a", "b/p"]
    assert left() == ["a", "b/p"]


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
    assert split_key(key) == (kind.group, kind.kind, "x")


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
    push = push_secret(dataTo=rules, secretStoreRefs=refs)

    stop = data_to_unlisted_store(PushSnapshot(push, SystemClock().now(), None, (), ()))

    assert (stop.failures[0].path if isinstance(stop, PushFailed) else None) == path


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

    assert (unmatched_data_to(push.spec, [chosen(team="a")]) is not None) is idle


# --- removals that fail -----------------------------------------------------------------------------------------------

OFF, GONE, FAILING = Reason.FEATURE_DISABLED, Reason.NOT_FOUND, ErrorReason.BACKEND_ERROR


def attempts(
    clock: Clock, gone: RetryLimit, failing: RetryLimit, namespaces: Cache[Object] | None = None
) -> tuple[RemovalAttempts, Memory[PushSecretRecord]]:
    memory = Memory(PushSecretRecord)
    terminating = TerminatingNamespaces(Cache() if namespaces is None else namespaces)
    return RemovalAttempts(clock, memory, terminating, gone, failing), memory


@pytest.mark.parametrize(
    ("reasons", "final", "given_up"),
    [
        pytest.param({GONE}, True, True, id="a store that is gone is given up soon"),
        pytest.param({GONE}, False, True, id="also by an object that lives on"),
        pytest.param({FAILING}, True, False, id="a backend that is away gets more time"),
        pytest.param({GONE, FAILING}, True, False, id="also if another value has no store"),
        pytest.param({FAILING}, False, False, id="an object that lives on has all the time there is"),
        pytest.param({OFF}, True, False, id="a deletion waits until the kind is turned on"),
        pytest.param({OFF}, False, False, id="and so does an object that lives on"),
    ],
)
async def test_when_a_removal_is_given_up(reasons: set[object], final: bool, given_up: bool) -> None:
    clock = VirtualClock()
    counted, _ = attempts(clock, RetryLimit(3, 5), RetryLimit(10, 100))

    verdicts = []
    for _ in range(4):
        verdicts.append(counted.give_up(push_secret().metadata, "store", reasons, final=final))
        await clock.advance(2)

    assert verdicts == [False, False, False, given_up]


@pytest.mark.parametrize(
    ("reasons", "final", "given_up"),
    [
        pytest.param({FAILING}, True, True, id="a deletion does not wait forever"),
        pytest.param({OFF, FAILING}, True, True, id="also if another value waits for its kind"),
        pytest.param({OFF}, True, False, id="a kind that is turned off comes back"),
        pytest.param({FAILING}, False, False, id="an object that lives on waits"),
    ],
)
async def test_a_backend_that_stays_away_is_given_up_in_the_end(
    reasons: set[object], final: bool, given_up: bool
) -> None:
    clock = VirtualClock()
    counted, _ = attempts(clock, RetryLimit(1, 0), RetryLimit(2, 10))
    counted.give_up(push_secret().metadata, "store", reasons, final=final)
    await clock.advance(20)

    assert counted.give_up(push_secret().metadata, "store", reasons, final=final) is given_up


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["stays", "ends"])
async def test_a_deletion_waits_for_a_kind_that_is_off_while_its_namespace_stays(metadata: dict[str, str]) -> None:
    """R153: in a namespace that ends, it waits no longer than for a backend that is away."""
    clock, namespaces = VirtualClock(), Cache[Object]()
    namespaces.apply(Listed((msgspec.convert({"metadata": {"name": "team-a", **metadata}}, Object),)))
    counted, _ = attempts(clock, RetryLimit(4, 5), RetryLimit(3, 5), namespaces)
    push = push_secret().metadata

    verdicts = []
    for _ in range(4):
        verdicts.append(counted.give_up(push, "store", {OFF}, final=True))
        await clock.advance(2)

    assert push.namespace == "team-a"
    assert verdicts == [False, False, False, bool(metadata)]


async def test_failed_removals_are_counted_for_one_object_and_forgotten_with_it() -> None:
    """A PushSecret that is gone has no effect on another of its name."""
    clock, first, second = VirtualClock(), push_secret().metadata, push_secret(metadata={"uid": "uid-2"}).metadata
    counted, memory = attempts(clock, RetryLimit(2, 0), RetryLimit(2, 0))

    counted.give_up(first, "store", {GONE}, final=True)
    another = counted.give_up(second, "store", {GONE}, final=True)
    counted.forget(second.key)

    assert (another, [record.removals for _, record in memory.items()]) == (False, [{}])


def test_an_entry_shows_no_value() -> None:
    shown = repr(Entry("spec.data[0]", msgspec.convert(entry("k", "r"), PushData), SecretBytes(b"CANARY")))

    assert "CANARY" not in shown
