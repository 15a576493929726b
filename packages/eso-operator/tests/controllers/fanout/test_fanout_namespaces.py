"""Which namespaces are meant, and what has to happen where."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_api.references import LabelSelector, SelectorError
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, StoredClusterExternalSecret
from eso_operator.controllers.fanout.snapshot import Choice, Gaps, Work, gaps, work
from kubebase.meta import ObjectKey, ObjectMeta

CHOICE = CLUSTER_EXTERNAL_SECRETS.choice

ENV = {"matchLabels": {"env": "dev"}}
TIER = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "api"]}]}

NAMESPACES = [
    ObjectMeta(name="dev-web", labels={"env": "dev", "tier": "web"}),
    ObjectMeta(name="dev-db", labels={"env": "dev", "tier": "db"}),
    ObjectMeta(name="prod-api", labels={"env": "prod", "tier": "api"}),
    ObjectMeta(name="bare"),
    ObjectMeta(name="leaving", labels={"env": "dev"}, deletion_timestamp="2026-01-01T00:00:00Z"),
]


def choice(**spec: Any) -> Choice:
    parent = msgspec.convert({"spec": {"externalSecretSpec": {}, **spec}}, StoredClusterExternalSecret)
    return CHOICE(parent)


def child(namespace: str, name: str = "db") -> ObjectKey:
    return ObjectKey(namespace, name)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [], id="no selector at all matches nothing, C2"),
        pytest.param({"namespaceSelectors": []}, [], id="an empty list of selectors matches nothing"),
        pytest.param(
            {"namespaceSelector": {}}, ["bare", "dev-db", "dev-web", "prod-api"], id="an empty selector matches all"
        ),
        pytest.param({"namespaceSelector": ENV}, ["dev-db", "dev-web"], id="matchLabels, R27"),
        pytest.param({"namespaceSelectors": [TIER]}, ["dev-web", "prod-api"], id="matchExpressions"),
        pytest.param(
            {"namespaceSelectors": [ENV, TIER]}, ["dev-db", "dev-web", "prod-api"], id="one matching selector is enough"
        ),
        pytest.param(
            {"namespaceSelector": ENV, "namespaceSelectors": [TIER], "namespaces": ["bare", "dev-web"]},
            ["bare", "dev-db", "dev-web", "prod-api"],
            id="all forms together, each namespace once",
        ),
        pytest.param({"namespaces": ["bare", "absent"]}, ["bare"], id="an unknown name is ignored, C3"),
        pytest.param({"namespaces": ["leaving"]}, [], id="a namespace that is being deleted gets nothing"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"env": "dev"}, **TIER}}, ["dev-web"], id="conditions add up"
        ),
    ],
)
def test_namespaces_are_chosen_by_name_and_by_label(spec: dict[str, Any], expected: list[str]) -> None:
    todo = work(choice(**spec), "db", namespaces=NAMESPACES, children=[])

    assert todo == Work(tuple(child(namespace) for namespace in expected), ())


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]},
            '"Is" is not an operator',
            id="operator",
        ),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "In"}]}, "needs values", id="no values"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}, "takes no values", id="values"
        ),
        pytest.param({"matchLabels": {"no key": "b"}}, '"no key" is no key', id="key with a space"),
        pytest.param({"matchLabels": {"": "b"}}, "is no key", id="empty key"),
        pytest.param({"matchLabels": {"a/b/c": "b"}}, "is no key", id="key with two slashes"),
        pytest.param({"matchLabels": {"A.io/b": "b"}}, "is no key", id="prefix with a capital"),
        pytest.param({"matchLabels": {"/b": "b"}}, "is no key", id="empty prefix"),
        pytest.param({"matchLabels": {"a": "x" * 64}}, "is no value", id="value too long"),
        pytest.param({"matchLabels": {"a": "-x"}}, "is no value", id="value that begins with a dash"),
    ],
)
def test_a_selector_that_kubernetes_would_refuse_is_reported_with_its_field(
    selector: dict[str, Any], complaint: str
) -> None:
    """C14: even if there is no namespace, and another selector is valid."""
    broken = choice(namespaceSelectors=[ENV, selector])

    with pytest.raises(SelectorError, match=r"spec\.namespaceSelectors\[1\]: ") as caught:
        work(broken, "db", namespaces=[], children=[])

    assert complaint in str(caught.value)


def test_labels_with_prefix_and_empty_value_are_in_order() -> None:
    selector = LabelSelector(match_labels={"team.example.com/name": "", "a": "1.0_x"})

    Choice(selectors=(("spec.namespaceSelector", selector),)).check()


@pytest.mark.parametrize(
    ("children", "stale"),
    [
        pytest.param([child("dev-web")], [], id="a child in a chosen namespace stays"),
        pytest.param([child("bare")], [child("bare")], id="a namespace is not chosen any more, R29"),
        pytest.param([child("dev-web", "old")], [child("dev-web", "old")], id="the name has changed, C8"),
        pytest.param([child("gone")], [child("gone")], id="the namespace is not known"),
        pytest.param([child("leaving")], [], id="a namespace that is being deleted takes its child along"),
        pytest.param([child("leaving", "old")], [], id="under an old name, too"),
    ],
)
def test_children_in_namespaces_that_are_not_chosen_are_stale(
    children: list[ObjectKey], stale: list[ObjectKey]
) -> None:
    todo = work(choice(namespaceSelector=ENV), "db", namespaces=NAMESPACES, children=children)

    assert todo == Work((child("dev-db"), child("dev-web")), tuple(stale))


_METAS = st.lists(
    st.builds(
        ObjectMeta,
        name=st.sampled_from("abcdef"),
        labels=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
        deletion_timestamp=st.sampled_from([None, "2026-01-01T00:00:00Z"]),
    ),
    unique_by=lambda meta: meta.name,
)


@given(
    namespaces=_METAS,
    selector=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
    children=st.sets(st.builds(ObjectKey, st.sampled_from("abcdefg"), st.sampled_from(["db", "old"]))),
)
def test_doing_the_work_leaves_none_to_do(
    namespaces: list[ObjectMeta], selector: dict[str, str], children: set[ObjectKey]
) -> None:
    picked = Choice(selectors=(("", LabelSelector(match_labels=selector)),))

    todo = work(picked, "db", namespaces=namespaces, children=children)
    after = (children - set(todo.stale)) | set(todo.wanted)
    again = work(picked, "db", namespaces=namespaces, children=after)

    assert not set(todo.wanted) & set(todo.stale)
    assert again == Work(todo.wanted, ())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, Gaps(nothing_chosen=True), id="nothing is chosen"),
        pytest.param({"namespaceSelector": ENV, "namespaces": ["bare"]}, Gaps(), id="all is there"),
        pytest.param({"namespaces": ["zoo", "bare", "ark"]}, Gaps(names=("ark", "zoo")), id="names that are not there"),
        pytest.param({"namespaces": ["leaving"]}, Gaps(), id="a namespace that is being deleted is still there"),
        pytest.param(
            {"namespaceSelectors": [ENV, {"matchLabels": {"env": "test"}}]},
            Gaps(selectors=("spec.namespaceSelectors[1]",)),
            id="one of two selectors matches nothing",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"state": "old"}}},
            Gaps(selectors=("spec.namespaceSelector",)),
            id="what is being deleted gets no child",
        ),
    ],
)
def test_names_and_selectors_without_a_namespace_are_reported_as_gaps(spec: dict[str, Any], expected: Gaps) -> None:
    leaving = ObjectMeta(name="late", labels={"state": "old"}, deletion_timestamp="2026-01-01T00:00:00Z")

    assert gaps(choice(**spec), [*NAMESPACES, leaving]) == expected
