"""The kinds of generators that need no network (R92)."""

import msgspec

from eso_api.generators.local import PasswordSpec
from eso_api.kinds import installed_kinds
from eso_provider_generators.kinds import KINDS, PASSWORD


def test_the_kinds_are_found_through_the_entry_point() -> None:
    assert set(KINDS) <= set(installed_kinds())


def test_the_example_of_the_proposal_decodes_R92() -> None:  # noqa: N802 - the row's name
    written = {"digits": 5, "symbols": 5, "symbolCharacters": "-_$@", "noUpper": False, "allowRepeat": True}

    spec = msgspec.convert({"spec": written}, PASSWORD.type).spec

    assert spec == PasswordSpec(digits=5, symbols=5, symbol_characters="-_$@", allow_repeat=True)
    assert spec.length == 24


def test_kubectl_lists_them_among_the_generators() -> None:
    assert all("external-secrets-generators" in kind.crd()["spec"]["names"]["categories"] for kind in KINDS)
