"""The entries of an ExternalSecret."""

import pytest

from eso_api.externalsecret import ExternalSecretSpec
from eso_operator.sources.entries import Entry, Extract, FindMany, Generate, OneValue, entries_of
from eso_operator.sources.fetch import remote_ref
from eso_testkit.operator.externalsecrets import entry, external_secret
from eso_wire.values import MetadataPolicy, Operation
from kubebase.meta import JsonObject


def spec(**fields: object) -> ExternalSecretSpec:
    return external_secret(**{"data": [], **fields}).spec  # type: ignore[arg-type]  # fields of the spec by name


def kinds(entries: tuple[Entry, ...]) -> list[tuple[str, str]]:
    return [(type(entry).__name__, entry.path) for entry in entries]


def test_data_from_comes_first_so_that_data_wins() -> None:
    """P15, P16."""
    generator = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "p"}}}
    entries = entries_of(
        spec(
            data=[entry("a", "x"), entry("b", "y")],
            dataFrom=[{"find": {"path": "p"}}, {"extract": {"key": "k"}}, generator],
        )
    )

    assert kinds(entries) == [
        ("FindMany", "spec.dataFrom[0].find"),
        ("Extract", "spec.dataFrom[1].extract"),
        ("Generate", "spec.dataFrom[2].sourceRef.generatorRef"),
        ("OneValue", "spec.data[0]"),
        ("OneValue", "spec.data[1]"),
    ]
    generate = entries[2]
    assert isinstance(generate, Generate)
    assert generate.index == 2


def test_an_entry_that_names_only_a_store_asks_for_nothing() -> None:
    """P14."""
    assert entries_of(spec(dataFrom=[{"sourceRef": {"storeRef": {"name": "other"}}}])) == ()


def test_find_wins_over_extract() -> None:
    assert kinds(entries_of(spec(dataFrom=[{"find": {"path": "p"}, "extract": {"key": "k"}}]))) == [
        ("FindMany", "spec.dataFrom[0].find")
    ]


def test_an_entry_uses_its_own_store_or_the_default_one() -> None:
    """R95: with its apiVersion."""
    own = {"name": "own", "kind": "ClusterSecretStore", "apiVersion": "external-secrets.io/v2alpha1"}
    entries = entries_of(
        spec(
            data=[{**entry("a", "x"), "sourceRef": {"storeRef": own}}, entry("b", "y")],
            dataFrom=[{"extract": {"key": "k"}, "sourceRef": {"storeRef": own}}],
        )
    )

    stores = [entry.store for entry in entries if not isinstance(entry, Generate)]
    assert [(store.name, store.api_version) for store in stores] == [
        ("own", "external-secrets.io/v2alpha1"),
        ("own", "external-secrets.io/v2alpha1"),
        ("store", ""),
    ]


def test_an_entry_of_data_with_a_generator_does_not_read_the_default_store() -> None:
    """P18."""
    generator = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "p"}}}

    [found] = entries_of(spec(data=[{**entry("a", "x"), **generator}]))

    assert isinstance(found, OneValue)
    assert found.store.name == ""


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        pytest.param({"name": {"regexp": "^a"}}, {Operation.FIND_BY_NAME}, id="by name"),
        pytest.param({"tags": {"a": "b"}}, {Operation.FIND_BY_TAGS}, id="by tags"),
        pytest.param({"tags": {"a": "b"}, "name": {"regexp": "x"}}, {Operation.FIND_BY_TAGS}, id="tags go first"),
        pytest.param({"path": "p/"}, {Operation.FIND_BY_PATH}, id="by path"),
    ],
)
def test_a_find_needs_the_right_ability(find: JsonObject, expected: set[Operation]) -> None:
    [found] = entries_of(spec(dataFrom=[{"find": find}]))

    assert isinstance(found, FindMany)
    assert found.operations == expected


def test_metadata_is_another_ability() -> None:
    fetch = {"secretKey": "a", "remoteRef": {"key": "x", "metadataPolicy": "Fetch"}}
    single, whole = entries_of(spec(data=[fetch], dataFrom=[{"extract": {"key": "k", "metadataPolicy": "Fetch"}}]))[
        ::-1
    ]

    assert isinstance(single, OneValue)
    assert isinstance(whole, Extract)
    assert single.operations == {Operation.GET, Operation.METADATA_FETCH}
    assert whole.operations == {Operation.GET_MAP, Operation.METADATA_FETCH}
    assert remote_ref(single.ref).metadata_policy is MetadataPolicy.FETCH
