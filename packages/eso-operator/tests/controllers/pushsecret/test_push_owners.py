"""The owner of a remote value that several PushSecrets record."""

from __future__ import annotations

import pytest

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.pushsecret.ownership import KEYS_INDEX, Owners, ValueOwner, keys_index
from eso_operator.controllers.pushsecret.record import PushSecretRecord, RemoteKey
from eso_operator.memory import Memory
from eso_testkit.operator.pushsecrets import entry, push_secret
from kuberun.cache import Cache
from kuberun.watch import Applied

KEY = RemoteKey("SecretStore/store", "db", "")


def recording(name: str, *, prop: str = "", **metadata: object) -> PushSecret:
    record = {"SecretStore/store": {"db": entry("key", "db", prop)}}
    return push_secret(metadata={"name": name, "uid": f"uid-{name}", **metadata}, status={"syncedPushSecrets": record})


def owners(*objects: PushSecret, memory: Memory[PushSecretRecord] | None = None) -> Owners:
    store: Cache[PushSecret] = Cache({KEYS_INDEX: keys_index})
    for one in objects:
        store.apply(Applied(one))
    return Owners(store, Memory(PushSecretRecord) if memory is None else memory)


OLD, NEW = recording("old"), recording("new")


@pytest.mark.parametrize(
    ("other", "claimed"),
    [
        pytest.param(NEW, True, id="another one"),
        pytest.param(OLD, False, id="itself"),
        pytest.param(recording("new", deletionTimestamp="2026-01-01T00:00:00Z"), False, id="one that is about to go"),
        pytest.param(recording("new", namespace="team-b"), False, id="of another namespace, in a store of its own"),
    ],
)
def test_a_place_is_claimed_by_others_that_record_it(other: PushSecret, claimed: bool) -> None:
    found = owners(OLD, other).other(OLD, KEY)

    assert (found == ValueOwner(other.key, confirmed=True)) is claimed


@pytest.mark.parametrize(
    ("theirs", "ours", "claimed"),
    [
        pytest.param("user", "", True, id="their property is in our whole"),
        pytest.param("", "user", True, id="our property is in their whole"),
        pytest.param("user", "user", True, id="the same property"),
        pytest.param("user", "password", False, id="another property"),
    ],
)
def test_a_property_and_the_whole_of_its_remote_key_claim_each_other(theirs: str, ours: str, claimed: bool) -> None:
    other = recording("new", prop=theirs)

    found = owners(OLD, other).other(OLD, RemoteKey("SecretStore/store", "db", ours))

    assert (found is not None) is claimed


def test_the_same_name_in_two_remote_namespaces_is_two_places() -> None:
    """`remoteNamespace` of a push to a Kubernetes cluster says where the value is."""
    metadata = {"spec": {"remoteNamespace": "blue"}}
    record = {"SecretStore/store": {"db": entry("key", "db", metadata=metadata)}}
    other = push_secret(metadata={"name": "new", "uid": "uid-new"}, status={"syncedPushSecrets": record})
    known = owners(OLD, other)

    assert known.other(OLD, KEY._replace(location="red")) is None
    assert known.other(OLD, KEY._replace(location="blue")) == ValueOwner(other.key, confirmed=True)


def test_an_announced_value_is_not_a_settled_claim() -> None:
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])

    assert known.other(OLD, KEY) == ValueOwner(NEW.key, confirmed=False)


def test_a_pushed_value_is_a_claim() -> None:
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.sent(NEW, [KEY])

    assert known.other(OLD, KEY) == ValueOwner(NEW.key, confirmed=True)


def test_a_rejected_value_is_not_a_claim_even_if_the_status_lists_it() -> None:
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.sent(NEW, [])

    assert known.other(OLD, KEY) is None


def test_only_what_was_announced_can_be_refused() -> None:
    memory = Memory(PushSecretRecord)
    known = owners(OLD, memory=memory)
    other = RemoteKey("SecretStore/store", "other", "")
    known.announce(OLD, [other])
    known.sent(OLD, [])

    assert known.refused(OLD) == {other}
    memory.forget(OLD.key)
    assert known.refused(OLD) == set()


def test_an_interrupted_push_may_have_landed_although_the_next_push_is_refused() -> None:
    """A reconcile that took too long: its result was lost, and it is on record."""
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.sending(NEW)
    known.announce(NEW, [])
    known.sent(NEW, [])

    assert known.refused(NEW) == set()
    assert known.other(OLD, KEY) == ValueOwner(NEW.key, confirmed=True)


def test_an_announced_value_that_was_never_sent_counts_as_rejected() -> None:
    """The API server took the announcement, and its answer was lost."""
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.announce(NEW, [])
    known.sending(NEW)
    known.sent(NEW, [])

    assert known.refused(NEW) == {KEY}


def test_an_announcement_that_somebody_elses_write_came_before_is_none() -> None:
    """Another operator that pushed it recorded it nevertheless: not ours to remove."""
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.withdraw(NEW)
    known.sent(NEW, [])

    assert known.refused(NEW) == set()
    assert known.other(OLD, KEY) == ValueOwner(NEW.key, confirmed=True)


def test_a_refused_value_that_is_announced_again_is_open_again() -> None:
    known = owners(OLD, NEW)
    known.announce(NEW, [KEY])
    known.sent(NEW, [])
    known.announce(NEW, [KEY])

    assert known.other(OLD, KEY) == ValueOwner(NEW.key, confirmed=False)
