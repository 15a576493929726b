"""The keys that each of several ExternalSecrets owns in one target, by managedFields."""

import pytest

from eso_operator.targets.metadata import field_manager_of, managers_of
from eso_operator.targets.observed import KeyShares
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.externalsecrets import external_secret
from kubebase.meta import JsonObject, meta_of

MINE, THEIRS = field_manager_of("db"), field_manager_of("other")


def target(version: str = "1", uid: str = "uid-secret", *, place: str = "f:data", **managers: str) -> JsonObject:
    """An object; keyword arguments are the keys that each manager owns, separated by blanks."""
    names = {"mine": MINE, "theirs": THEIRS, "kubectl": "kubectl-edit"}
    entries = []
    for name, keys in managers.items():
        fields: JsonObject = {"f:data": {f"f:{key}": {} for key in keys.split()}}
        fields = {"f:spec": fields} if place == "f:spec" else fields
        entries.append({"manager": names[name], "operation": "Apply", "fieldsV1": fields})
    return {"metadata": {"name": "db", "uid": uid, "resourceVersion": version, "managedFields": entries}}


@pytest.mark.parametrize("place", ["f:data", "f:spec"])
@pytest.mark.parametrize(
    ("now", "intact"),
    [
        pytest.param({"mine": "a b"}, True, id="untouched"),
        pytest.param({"mine": "a b", "theirs": "c"}, True, id="others added something"),
        pytest.param({"mine": "a"}, False, id="a key is gone"),
        pytest.param({"mine": "a", "kubectl": "b"}, False, id="a key was edited by hand"),
        pytest.param({"mine": "a", "theirs": "b"}, True, id="L32 a key was taken by another ExternalSecret"),
        pytest.param({"theirs": "c"}, False, id="L7 it was made anew by another ExternalSecret"),
    ],
)
def test_a_share_is_intact_while_its_keys_are_there(place: str, now: dict[str, str], intact: bool) -> None:
    shares, es = KeyShares(Memories().external_secrets), external_secret("db")
    shares.keep(es, target(place=place, mine="a b", theirs="d"))

    assert shares.check(es, target("2", place=place, **now)) is intact


def test_a_verdict_on_a_target_holds_for_that_version_only() -> None:
    shares, es = KeyShares(Memories().external_secrets), external_secret("db")
    shares.keep(es, target("1", mine="a"))
    shares.check(es, target("2", theirs="b"))

    verdicts = [shares.verdict(es, meta_of(each)) for each in (target("1"), target("2"), target("2", uid="another"))]

    assert verdicts == [None, False, None]


def test_without_a_write_of_its_own_nothing_is_known() -> None:
    shares = KeyShares(Memories().external_secrets)
    shares.keep(external_secret("other"), target(theirs="a"))

    assert shares.check(external_secret("db"), target(mine="a")) is None
    assert managers_of(target(mine="a", kubectl="b")) == {MINE, "kubectl-edit"}
