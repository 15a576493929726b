"""The fake provider's kinds: its v1 block as objects of their own."""

import msgspec

from eso_api.kinds import installed_kinds
from eso_api.stores.fake import FakeProvider
from eso_provider_fake.kinds import KINDS


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


def test_the_spec_is_that_of_the_v1_provider() -> None:
    v1 = {"data": [{"key": "a", "value": "b", "version": "1"}], "validationResult": 1}

    spec = msgspec.convert({"spec": v1}, KINDS[0].type).spec

    assert isinstance(spec, FakeProvider)
    assert (spec.data[0].key, spec.data[0].version, spec.validation_result) == ("a", "1", 1)


def test_only_the_cluster_twin_says_who_may_use_it() -> None:
    namespaced, cluster = (
        kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["common"]
        for kind in KINDS
    )

    assert "conditions" not in namespaced["properties"]
    assert "conditions" in cluster["properties"]


def test_the_twins_differ_in_scope() -> None:
    assert [(kind.name, kind.namespaced) for kind in KINDS] == [("Fake", True), ("ClusterFake", False)]
