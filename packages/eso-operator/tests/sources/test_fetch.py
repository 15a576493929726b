"""All entries of an ExternalSecret fetched in as few calls as can be, and what becomes of those that fail."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.references import GeneratorRef, StoreRef
from eso_api.values import SecretBytes
from eso_operator.changes.followers import ReadState, Topic, WatchedKey
from eso_operator.dependencies import ANY_PROVIDER, OnObject
from eso_operator.generators.ledger import GeneratedValues
from eso_operator.sources.fetch import Fetched, Fetcher
from eso_operator.stores.resolved import BoundStore, Need, Reason, ResolutionError, ResolvedStore
from eso_render.rendering import rendering_of_keys
from eso_render.workers import Workers
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.externalsecrets import entry, external_secret, values
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import (
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    ObjectRef,
    Operation,
    RemoteRef,
    Shape,
    ValueMetadata,
)
from kubebase.meta import JsonObject, ObjectKey

MISSING = ProviderError(ErrorReason.SECRET_NOT_FOUND, "it is not there")
DENIED = ProviderError(ErrorReason.PERMISSION_DENIED, "no right")


@dataclass
class Backend:
    """Stores by name, and what they hold. Stands for resolver, binding, reads, finds and generators."""

    data: dict[str, str] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    errors: dict[str, ProviderError] = field(default_factory=dict)
    no_stores: frozenset[str] = frozenset()
    operations: frozenset[Operation] = frozenset(Operation)
    suggested: float = 0.0
    reads: list[tuple[str, list[str]]] = field(default_factory=list)
    finds: list[FindQuery] = field(default_factory=list)
    requested_at: list[float | None] = field(default_factory=list)

    @property
    def fetcher(self) -> Fetcher:
        rendering = rendering_of_keys(Workers())
        return Fetcher(self, self.bind, reads=self, gateway=self, generators=self, rendering=rendering)  # type: ignore[arg-type]  # only resolving is used

    async def fetch(self, es: ExternalSecret, fresh_since: float | None = None) -> Fetched:
        return await self.fetcher.fetch(es, fresh_since=fresh_since)

    def resolve_now(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        return self._resolved(ref, caller, need)

    async def resolve(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        return self._resolved(ref, caller, need)

    def _resolved(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        assert caller.name == "db"
        assert need.operations
        if ref.name in self.no_stores:
            subject = ObjectRef(
                api_version="external-secrets.io/v1", kind="SecretStore", namespace="default", name=ref.name
            )
            raise ResolutionError(Reason.NOT_FOUND, f"no store {ref.name}", subject=subject)
        target = bound_store().resolved
        return replace(target, store=replace(target.store, name=ref.name), operations=self.operations)

    async def bind(self, target: ResolvedStore) -> BoundStore:
        return replace(bound_store(), resolved=target)

    async def read(
        self, bound: BoundStore, items: Sequence[GetItem], *, requested_at: float | None = None, **_: object
    ) -> list[GetResult]:
        self.requested_at.append(requested_at)
        self.reads.append((bound.resolved.store.name, [item.ref.key for item in items]))
        return [self._result(item) for item in items]

    async def find(self, bound: BoundStore, query: FindQuery, **_: object) -> FindPage:
        del bound
        self.finds.append(query)
        if query.path in self.errors:
            raise self.errors[query.path]
        found = [Found(key, value) for key, value in values(self.data).items() if key.startswith(query.path)]
        return FindPage(tuple(found), last=True)

    async def generate(self, caller: ObjectRef, index: int, ref: GeneratorRef, held: None = None) -> GeneratedValues:
        del caller, held
        if ref.name in self.errors:
            raise self.errors[ref.name]
        return GeneratedValues(index, bound_store(), values({"made": ref.name}))

    def _result(self, item: GetItem) -> GetResult:
        metadata = ValueMetadata(provider_version="7", suggested_refresh=self.suggested)
        key = item.ref.key
        if key in self.errors:
            return GetResult(item.item_id, self.errors[key])
        if item.shape is Shape.MAP and key in self.maps:
            return GetResult(item.item_id, values(self.maps[key]), metadata=metadata)
        if item.shape is Shape.SINGLE and key in self.data:
            return GetResult(item.item_id, SecretBytes(self.data[key].encode()), metadata=metadata)
        return GetResult(item.item_id, MISSING)


def revealed(fetched: Fetched) -> dict[str, str]:
    return {key: value.reveal().decode() for key, value in fetched.values.items()}


def asking(policy: str = "Retain", **spec: Any) -> ExternalSecret:
    return external_secret(**{"data": [], "target": {"deletionPolicy": policy}, **spec})


async def test_all_reads_of_one_store_are_one_call_and_stores_are_asked_side_by_side() -> None:
    backend = Backend(data={"x": "1", "y": "2", "z": "3"}, maps={"m": {"k": "4"}})
    other = {"sourceRef": {"storeRef": {"name": "other"}}}

    fetched = await backend.fetch(
        asking(
            data=[entry("a", "x"), entry("b", "y"), {**entry("c", "z"), **other}], dataFrom=[{"extract": {"key": "m"}}]
        )
    )

    assert revealed(fetched) == {"k": "4", "a": "1", "b": "2", "c": "3"}
    assert sorted(backend.reads) == [("other", ["z"]), ("store", ["m", "x", "y"])]


async def test_later_entries_win_and_data_wins_over_data_from() -> None:
    """P15, P16, P17."""
    backend = Backend(data={"x": "data", "y": "last"}, maps={"m": {"k": "first", "n": "n"}, "o": {"k": "second"}})

    fetched = await backend.fetch(
        asking(
            "Merge",
            data=[entry("d", "x"), entry("d", "y"), entry("n", "x")],
            dataFrom=[{"extract": {"key": "m"}}, {"extract": {"key": "o"}}],
        )
    )

    assert revealed(fetched) == {"k": "second", "n": "data", "d": "last"}


@pytest.mark.parametrize("reason", [ErrorReason.PROPERTY_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND])
async def test_a_missing_property_or_version_is_a_failure_and_never_an_absent_value(reason: ErrorReason) -> None:
    """A typo in a property must not delete a Secret."""
    backend = Backend(errors={"x": ProviderError(reason, "the key has no such part")})

    fetched = await backend.fetch(asking("Delete", data=[entry("a", "x")]))

    assert fetched.missing == ()
    assert [failure.remote_key for failure in fetched.failures] == ["x"]


@pytest.mark.parametrize("policy", ["Delete", "Merge"])
async def test_a_missing_entry_is_skipped_and_reported(policy: str) -> None:
    """P6, R57, R58."""
    backend = Backend(data={"x": "1"}, errors={"p/": MISSING})
    find = {"find": {"path": "p/"}}

    fetched = await backend.fetch(
        asking(policy, data=[entry("a", "x"), entry("b", "gone")], dataFrom=[{"extract": {"key": "m"}}, find])
    )

    assert revealed(fetched) == {"a": "1"}
    assert [(missing.path, missing.remote_key) for missing in fetched.missing] == [
        ("spec.dataFrom[0].extract", "m"),
        ("spec.dataFrom[1].find", "p/"),
        ("spec.data[1]", "gone"),
    ]
    assert fetched.failures == ()


@pytest.mark.parametrize("policy", ["Delete", "Merge"])
async def test_a_provider_that_cannot_tell_absence_from_failure_is_not_believed(policy: str) -> None:
    """R59."""
    backend = Backend(data={"x": "1"}, operations=frozenset(Operation) - {Operation.NOT_FOUND_SEMANTICS})

    fetched = await backend.fetch(asking(policy, data=[entry("a", "x"), entry("b", "gone")]))

    [failure] = fetched.failures
    assert (failure.path, failure.reason) == ("spec.data[1]", "SecretNotFound")
    assert "use Retain" in failure.message
    assert fetched.missing == ()


async def test_under_retain_a_missing_entry_is_a_failure_and_there_are_no_values_at_all() -> None:
    """P5, R56."""
    fetched = await Backend(data={"x": "1"}).fetch(asking(data=[entry("a", "x"), entry("b", "gone")]))

    assert fetched.values == {}
    assert [(failure.path, failure.reason) for failure in fetched.failures] == [("spec.data[1]", "SecretNotFound")]


@pytest.mark.parametrize("policy", ["Retain", "Delete", "Merge"])
async def test_only_absence_is_tolerated(policy: str) -> None:
    fetched = await Backend(errors={"x": DENIED}).fetch(asking(policy, data=[entry("a", "x")]))

    assert len(fetched.failures) == 1
    assert fetched.missing == ()


async def test_every_entry_is_tried_and_every_cause_is_listed() -> None:
    backend = Backend(errors={"x": DENIED, "maker": DENIED}, no_stores=frozenset({"none"}), maps={"m": {"a/b": "1"}})
    fetched = await backend.fetch(
        asking(
            data=[entry("a", "x"), {**entry("b", "y"), "sourceRef": {"storeRef": {"name": "none"}}}],
            dataFrom=[
                {"extract": {"key": "m"}, "rewrite": [{"regexp": {"source": "z", "target": "z"}}]},
                {"sourceRef": {"generatorRef": {"kind": "Password", "name": "maker"}}},
            ],
        )
    )

    assert [(failure.path, failure.store) for failure in fetched.failures] == [
        ("spec.dataFrom[0].extract", "SecretStore store"),
        ("spec.dataFrom[1].sourceRef.generatorRef", "Password maker"),
        ("spec.data[0]", "SecretStore store"),
        ("spec.data[1]", "SecretStore none"),
    ]
    assert fetched.failures[0].retry is RetryClass.AFTER_CHANGE
    assert fetched.failures[3].reason == Reason.NOT_FOUND.value


async def test_a_store_that_is_not_there_is_waited_for() -> None:
    fetched = await Backend(no_stores=frozenset({"store"})).fetch(asking(data=[entry("a", "x")]))

    assert OnObject("external-secrets.io", "SecretStore", ObjectKey("default", "store")) in fetched.depends_on
    assert ANY_PROVIDER in fetched.depends_on


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        pytest.param(
            {"data": [{**entry("a", "a"), "sourceRef": {"generatorRef": {"kind": "Password", "name": "p"}}}]},
            "spec.data[0]",
            "Password p is a generator, which makes many values and not one: name it in an entry of dataFrom",
            id="P18: a generator for one value",
        ),
        pytest.param(
            {"data": [entry("a", "a")], "secretStoreRef": {"kind": "ClusterSecretStore"}},
            "spec.data[0]",
            "no store is named: set spec.secretStoreRef.name",
            id="no store for one value",
        ),
        pytest.param(
            {"dataFrom": [{"extract": {"key": "a"}}], "secretStoreRef": None},
            "spec.dataFrom[0].extract",
            "no store is named: set spec.secretStoreRef.name",
            id="no store for many",
        ),
    ],
)
async def test_an_entry_without_a_store_says_what_is_wrong_with_it(spec: JsonObject, path: str, words: str) -> None:
    fetched = await Backend(data={"a": "1"}).fetch(asking(**spec))

    [failure] = fetched.failures
    assert (failure.path, failure.reason, failure.store) == (path, "InvalidSpec", "")
    assert words in failure.message


async def test_dependencies_are_known_even_when_the_backend_refuses() -> None:
    fetched = await Backend(errors={"x": DENIED}).fetch(asking(data=[entry("a", "x")]))

    assert OnObject("", "SecretStore", ObjectKey("team", "store")) in fetched.depends_on


async def test_generated_values_reach_the_ledger_even_when_another_entry_fails() -> None:
    """P25."""
    backend = Backend(errors={"x": DENIED})
    maker = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "maker"}}}

    fetched = await backend.fetch(asking(data=[entry("a", "x")], dataFrom=[maker]))

    assert fetched.values == {}
    assert [made.index for made in fetched.made] == [0]


async def test_generated_values_are_renamed_but_neither_converted_nor_decoded() -> None:
    """R21."""
    maker = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "maker"}}}
    rewrite = [{"regexp": {"source": "made", "target": "token"}}]

    fetched = await Backend().fetch(asking(dataFrom=[{**maker, "rewrite": rewrite}]))

    assert revealed(fetched) == {"token": "maker"}


async def test_the_shortest_life_of_a_value_is_known() -> None:
    """R24."""
    fetched = await Backend(data={"x": "1"}, suggested=60).fetch(asking(data=[entry("a", "x")]))

    assert fetched.refresh_within == 60


async def test_no_value_is_shown() -> None:
    fetched = await Backend(data={"x": "CANARY"}).fetch(asking(data=[entry("a", "x")]))

    assert "CANARY" not in repr(fetched)


async def test_keys_and_searches_that_were_read_can_be_followed_with_their_versions() -> None:
    backend = Backend(data={"x": "1", "p/1": "2"}, maps={"m": {"k": "4"}})
    property_ = {"secretKey": "b", "remoteRef": {"key": "x", "property": "any"}}
    finds = [{"find": {"name": {"regexp": "^x"}}}, {"find": {"path": "p/"}}]

    fetched = await backend.fetch(
        asking(data=[entry("a", "x"), property_], dataFrom=[{"extract": {"key": "m"}}, *finds])
    )

    topics = followed(fetched.watched_keys)
    assert topics == {
        Topic(RemoteRef("x")): "7",
        Topic(RemoteRef("m")): "7",
        Topic(None, "^x"): "",
    }


def followed(watched_keys: Sequence[WatchedKey]) -> dict[Topic, str]:
    return {topic: version for watched in watched_keys for topic, version in watched.versions.items()}


async def test_keys_of_the_spec_can_be_followed_without_reading() -> None:
    backend = Backend(data={"x": "1"})

    watched_keys = await backend.fetcher.watched_keys(
        asking(data=[entry("a", "x")], dataFrom=[{"find": {"name": {"regexp": "^x"}}}, {"extract": {"key": "m"}}])
    )

    assert followed(watched_keys) == {Topic(RemoteRef("x")): "", Topic(RemoteRef("m")): "", Topic(None, "^x"): ""}
    assert (backend.reads, backend.finds) == ([], [])


@pytest.mark.parametrize(
    ("spec", "reading"),
    [
        pytest.param({"data": [entry("a", "x")]}, ReadState.WHOLE, id="a key"),
        pytest.param({"dataFrom": [{"find": {"name": {"regexp": "^x"}}}]}, ReadState.WHOLE, id="a search"),
        pytest.param(
            {"data": [entry("a", "x")], "dataFrom": [{"find": {"path": "p/"}}]},
            ReadState.PART,
            id="a search below a path",
        ),
        pytest.param(
            {
                "data": [entry("a", "x")],
                "dataFrom": [{"sourceRef": {"generatorRef": {"kind": "Password", "name": "maker"}}}],
            },
            ReadState.PART,
            id="a generator, whose values are made anew at the interval",
        ),
    ],
)
async def test_it_is_known_whether_all_that_is_read_can_be_followed(spec: JsonObject, reading: ReadState) -> None:
    backend = Backend(data={"x": "1", "p/1": "2"})

    assert (await backend.fetch(asking(**spec))).read_state is reading


async def test_nothing_is_followed_where_the_provider_tells_of_no_changes() -> None:
    backend = Backend(data={"x": "1"}, operations=frozenset(Operation) - {Operation.SUBSCRIBE})

    assert (await backend.fetch(asking(data=[entry("a", "x")]))).watched_keys == ()


@pytest.mark.parametrize("fresh_since", [None, 5.0])
async def test_a_value_read_before_the_request_or_an_announced_change_is_read_again(fresh_since: float | None) -> None:
    backend = Backend(data={"x": "1"})

    await backend.fetch(asking(data=[entry("a", "x")]), fresh_since=fresh_since)

    assert backend.requested_at == [fresh_since]
