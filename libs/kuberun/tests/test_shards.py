"""Shards of places and of members: pure, so properties say it all."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import ObjectKey
from kuberun.sharding import assigned, by_namespace, same_shard, shard_of

NAMESPACES = [f"team-{number}" for number in range(1000)]
MEMBERS = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=8)


@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_namespaces_are_spread_evenly(shards: int) -> None:
    load = Counter(shard_of(name, shards) for name in NAMESPACES)

    assert sorted(load) == list(range(shards))
    assert max(load.values()) < 1.3 * len(NAMESPACES) / shards


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_with_one_shard_more_a_namespace_stays_or_moves_to_the_new_shard(shards: int) -> None:
    moves = {(shard_of(name, shards), shard_of(name, shards + 1)) for name in NAMESPACES}

    assert {after for before, after in moves if before != after} == {shards}


def test_cluster_scoped_objects_belong_together_and_with_the_kinds_that_are_placed_together() -> None:
    assert by_namespace(ObjectKey("", "one")) == by_namespace(ObjectKey("", "other")) == same_shard(ObjectKey("a", "b"))


@given(st.integers(1, 16), MEMBERS)
def test_each_shard_has_one_member_and_no_member_more_than_its_share(shards: int, members: set[str]) -> None:
    found = assigned(shards, members)

    load = Counter(found.values())
    assert sorted(found) == list(range(shards))
    assert set(load) <= members
    assert max(load.values()) <= -(-shards // len(members))


@given(st.integers(1, 16), MEMBERS)
def test_the_order_in_which_members_are_seen_does_not_matter(shards: int, members: set[str]) -> None:
    assert assigned(shards, sorted(members)) == assigned(shards, sorted(members, reverse=True))


def test_without_members_nothing_is_assigned() -> None:
    assert assigned(4, []) == {}
