"""The table of functions: complete, without those that the operator removed, and loaded only on use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eso_render import RenderError, render_text
from eso_render.functions import NAMES, functions
from gotmpl.functions import family


@pytest.mark.parametrize(("module", "names"), NAMES.items(), ids=NAMES)
def test_a_family_has_the_names_it_is_said_to_have(module: str, names: str) -> None:
    assert sorted(family(f"eso_render.functions.{module}")()) == sorted(names.split())


def test_there_are_eighteen_functions_of_our_own_and_two_hundred_and_nine_of_sprig() -> None:
    own = {name for names in NAMES.values() for name in names.split()}
    builtins = set("and call eq ge gt html index js le len lt ne not or print printf println slice urlquery".split())  # noqa: SIM905 reads better

    table = set(functions(lambda: 0))

    assert len(own) == 18
    assert len(table - own - (builtins - {"slice"})) == 209


@pytest.mark.parametrize("name", ["env", "expandenv", "getHostByName", "include", "tpl", "required", "lookup"])
def test_functions_that_reach_outside_do_not_exist(name: str) -> None:
    with pytest.raises(RenderError, match=f'function "{name}" not defined'):
        render_text("{{ " + name + ' "HOME" }}', {})


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, eso_render; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"cryptography", "yaml", "re2", "bcrypt", "msgspec", "inspect", "gotmpl.template"} & set(loaded)
