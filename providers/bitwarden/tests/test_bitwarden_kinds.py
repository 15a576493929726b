"""The kinds of this provider, and the v1 block that it serves."""

from __future__ import annotations

import pytest

from eso_api.kinds import AnyKind, installed_kinds
from eso_provider_bitwarden.kinds import KINDS
from eso_provider_bitwarden.provider import PROVIDER


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_ids_and_a_token_are_all_a_configuration_needs(kind: AnyKind) -> None:
    schema = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert sorted(schema["properties"]["spec"]["required"]) == ["auth", "organizationID", "projectID"]


def test_one_kind_serves_the_block_of_v1_stores() -> None:
    served = [info.kind.kind for info in PROVIDER.kind_infos if info.v1_provider_key == "bitwardensecretsmanager"]

    assert served == ["BitwardenSecretsManager"]
