"""Functions load by family; the listed names must equal those of the modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gotmpl.functions import LazyFunctions, family
from gotmpl.sprig import CERTIFICATES, DATES, NAMES, families

NANOS = 1_700_000_000 * 10**9


@pytest.mark.parametrize(("module", "names"), NAMES.items(), ids=NAMES)
def test_a_family_has_the_names_it_is_said_to_have(module: str, names: str) -> None:
    table = family(f"gotmpl.sprig.{module}")()

    assert sorted(table) == sorted(names.split())


def test_families_over_a_clock_have_the_names_they_are_said_to_have() -> None:
    loads = dict(families(lambda: NANOS))

    assert sorted(loads[DATES]()) == sorted(DATES.split())
    assert sorted(loads[CERTIFICATES]()) == sorted(CERTIFICATES.split())


def test_a_later_family_overrides_an_earlier_one() -> None:
    lists, builtins = family("gotmpl.sprig.lists"), family("gotmpl.builtins")

    functions = LazyFunctions([("slice len", builtins), ("slice", lists)])

    assert functions["slice"] is lists()["slice"]
    assert functions["len"] is builtins()["len"]


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = "import sys, gotmpl.template, gotmpl.builtins, gotmpl.sprig; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"cryptography", "re2", "yaml", "bcrypt", "zoneinfo", "gotmpl.sprig.crypto"} & set(loaded)
