"""Label selectors have the same meaning as in Kubernetes."""

import pytest

from eso_api.pushsecret import PushStoreRef, SecretSource
from eso_api.references import LabelRequirement, LabelSelector, SelectorError

LABELS = {"env": "production", "team": "blue", "empty": ""}


def requirement(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=[LabelRequirement(key=key, operator=operator, values=list(values))])


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(LabelSelector(), True, id="the empty selector matches everything"),
        pytest.param(LabelSelector(match_labels={"env": "production"}), True, id="equal label"),
        pytest.param(LabelSelector(match_labels={"env": "staging"}), False, id="different value"),
        pytest.param(LabelSelector(match_labels={"zone": "a"}), False, id="missing label"),
        pytest.param(LabelSelector(match_labels={"empty": ""}), True, id="empty value is a value"),
        pytest.param(LabelSelector(match_labels={"env": "production", "team": "red"}), False, id="all must be equal"),
        pytest.param(requirement("env", "In", "staging", "production"), True, id="in"),
        pytest.param(requirement("env", "In", "staging"), False, id="not in the list"),
        pytest.param(requirement("zone", "In", "a"), False, id="in needs the label"),
        pytest.param(requirement("env", "NotIn", "staging"), True, id="not in"),
        pytest.param(requirement("zone", "NotIn", "a"), True, id="not in accepts a missing label"),
        pytest.param(requirement("env", "NotIn", "production"), False, id="not in refuses the value"),
        pytest.param(requirement("team", "Exists"), True, id="exists"),
        pytest.param(requirement("zone", "Exists"), False, id="does not exist"),
        pytest.param(requirement("zone", "DoesNotExist"), True, id="absent"),
        pytest.param(requirement("env", "DoesNotExist"), False, id="present"),
    ],
)
def test_a_selector_matches_labels(selector: LabelSelector, matches: bool) -> None:
    assert selector.matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param(requirement("env", "Like", "x"), "not an operator", id="unknown operator"),
        pytest.param(requirement("env", "In"), "needs values", id="in without values"),
        pytest.param(requirement("env", "Exists", "x"), "takes no values", id="exists with values"),
    ],
)
def test_a_broken_selector_says_what_is_wrong(selector: LabelSelector, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        selector.matches(LABELS)


def test_a_broken_requirement_is_reported_even_when_other_labels_do_not_match() -> None:
    broken = LabelRequirement(key="env", operator="Like")
    selector = LabelSelector(match_labels={"env": "staging"}, match_expressions=[broken])

    with pytest.raises(SelectorError):
        selector.matches(LABELS)


def test_a_selector_can_be_sent_to_the_api() -> None:
    selector = LabelSelector(
        match_labels={"team": "blue", "env": "production"},
        match_expressions=[
            LabelRequirement(key="zone", operator="NotIn", values=["b", "a"]),
            LabelRequirement(key="tier", operator="Exists"),
            LabelRequirement(key="old", operator="DoesNotExist"),
        ],
    )

    assert selector.query() == "env=production,team=blue,zone notin (a,b),tier,!old"


def test_objects_are_selected_by_their_labels() -> None:
    selector = LabelSelector(match_labels={"team": "a"})

    assert selector.among([{"team": "a", "x": "y"}, {"team": "b"}, {}], lambda labels: labels) == [
        {"team": "a", "x": "y"}
    ]


def test_a_broken_selector_is_refused_even_where_there_is_nothing_to_select() -> None:
    broken = LabelSelector(match_expressions=[LabelRequirement(key="a", operator="Like")])
    nothing: list[dict[str, str]] = []

    with pytest.raises(SelectorError, match="Like"):
        broken.among(nothing, lambda labels: labels)


@pytest.mark.parametrize(
    ("ref", "group_kind"),
    [
        pytest.param(PushStoreRef(name="s"), ("external-secrets.io", "SecretStore"), id="defaults"),
        pytest.param(PushStoreRef(kind="", name="s"), ("external-secrets.io", "SecretStore"), id="an empty kind"),
        pytest.param(PushStoreRef(api_version="ex.io/v1", kind="Vault"), ("ex.io", "Vault"), id="another group"),
        pytest.param(
            PushStoreRef(api_version="ex.io/v2", kind="Vault"), ("ex.io", "Vault"), id="another version of it"
        ),
    ],
)
def test_versions_of_one_group_name_the_same_stores(ref: PushStoreRef, group_kind: tuple[str, str]) -> None:
    assert ref.group_kind == group_kind


@pytest.mark.parametrize(
    ("choice", "chooses"),
    [
        pytest.param(PushStoreRef(name="s"), True, id="a store by name"),
        pytest.param(PushStoreRef(label_selector=LabelSelector()), True, id="all stores"),
        pytest.param(PushStoreRef(), False, id="no store"),
        pytest.param(SecretSource(name="s"), True, id="a Secret by name"),
        pytest.param(SecretSource(selector=LabelSelector()), True, id="all Secrets"),
        pytest.param(SecretSource(), False, id="no Secret"),
    ],
)
def test_a_name_or_a_selector_chooses_and_an_empty_selector_chooses_everything(
    *, choice: PushStoreRef | SecretSource, chooses: bool
) -> None:
    assert choice.chooses is chooses
