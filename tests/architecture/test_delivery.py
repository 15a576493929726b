"""Delivery: providers as projects with a maturity and an owner; CI for changes, nights and releases."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from delivery.workspace import distributions
from eso_sdk.provider import Maturity
from eso_wire.values import Operation

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = {path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("providers/*/pyproject.toml")}
SERVING = {name: each for name, each in PROVIDERS.items() if "eso.providers" in each["project"].get("entry-points", {})}
PAGE = (ROOT / "providers" / "README.md").read_text(encoding="utf-8")


def maturities() -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_provider_is_a_project_of_its_own(name: str) -> None:
    """R74, R98: name, version, package, tests; it needs neither the operator nor another provider."""
    project = PROVIDERS[name]["project"]
    needed = {re.split(r"[<>=~! \[]", entry)[0] for entry in project["dependencies"]}

    assert project["name"] == f"eso-provider-{name}"
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["version"])
    assert PROVIDERS[name]["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"src/eso_provider_{name}"]
    assert list((ROOT / "providers" / name / "tests").glob("test_*.py"))
    assert not [entry for entry in needed if entry == "eso-operator" or entry.startswith("eso-provider-")]


@pytest.mark.parametrize("name", sorted(SERVING))
def test_a_provider_that_serves_has_a_command_and_is_tried_by_the_suite(name: str) -> None:
    """R98, R105."""
    project: dict[str, Any] = SERVING[name]["project"]

    assert f"eso-provider-{name}" in project["scripts"]
    assert name in project["entry-points"]["eso.conformance"]


def test_every_provider_has_a_maturity_and_those_that_are_stable_have_earned_it() -> None:
    """R101."""
    suite = (ROOT / "tests" / "conformance" / "test_provider_conformance.py").read_text()
    whole = ROOT / "tests" / "e2e"
    of_all = (whole / "test_all_forms.py").read_text()
    stable = {name for name, maturity in maturities().items() if maturity == "stable"}

    assert set(maturities()) == set(PROVIDERS)
    assert set(maturities().values()) <= set(Maturity)
    assert stable <= set(SERVING)
    assert [name for name in stable if f'serve_command("{name}")' not in suite] == []
    elsewhere = [name for name in stable if f"eso_cli.serving {name}" not in of_all]
    assert [name for name in elsewhere if not list(whole.glob(f"test_{name}*.py"))] == []


@pytest.mark.parametrize("name", sorted(SERVING))
def test_the_table_and_the_provider_agree_on_its_maturity(name: str) -> None:
    provider = entry_points(group="eso.providers")[name].load()

    assert provider.maturity == maturities()[name]
    assert provider.manifest()["maturity"] == provider.maturity


@pytest.mark.parametrize("word", Maturity)
def test_the_words_of_maturity_are_defined(word: Maturity) -> None:
    assert f"- **{word}**: " in PAGE


def test_an_unproven_provider_is_tested_against_a_stand_in_and_no_other_is() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| ([^|]+) \|", PAGE, re.MULTILINE)

    assert {name for name, maturity, _ in rows if maturity == "unproven"} == {
        name for name, _, against in rows if "stand-in" in against
    }


def declared() -> dict[str, str]:
    """Return the maturity that each provider itself declares."""
    return {name: entry_points(group="eso.providers")[name].load().maturity.value for name in SERVING}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "guides" / "providers").glob("*.md")), ids=lambda page: page.stem
)
def test_the_page_of_a_provider_begins_with_its_maturity_and_what_it_was_tested_against(page: Path) -> None:
    against = dict(re.findall(r"^\| `([a-z-]+)` \| \w+ \| ([^|]+) \|", PAGE, re.MULTILINE))
    if page.stem not in SERVING:
        assert page.stem == "vault-auth"  # a second page of vault
        return

    maturity = declared()[page.stem]

    lines = page.read_text(encoding="utf-8").splitlines()
    definitions = "([definitions](../../../providers/README.md#maturity))"
    assert lines[2] == f"Maturity: **{maturity}**, tested against {against[page.stem]} {definitions}."


@pytest.mark.parametrize("page", ["README.md", "docs/faq.md"])
def test_pages_that_list_providers_list_them_by_maturity(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    listed = {
        word: set(re.findall(r"`([a-z-]+)`", names))
        for word, names in re.findall(r"^- \*\*(\w+)\*\*: (.+)$", text, re.MULTILINE)
    }

    assert listed == {word.value: {name for name, own in declared().items() if own == word} for word in Maturity}


def test_the_chart_knows_the_maturity_of_each_provider() -> None:
    chart = ROOT / "deploy" / "charts" / "external-secrets" / "files" / "maturity.yaml"

    assert yaml.safe_load(chart.read_text()) == declared()


@pytest.mark.parametrize("name", sorted(SERVING))
def test_the_table_says_what_a_provider_supports(name: str) -> None:
    """R59."""
    provider = entry_points(group="eso.providers")[name].load()
    offered = {operation for kind in provider.kind_infos for operation in kind.operations}

    pushes, deletes = re.findall(rf"^\| `{name}` \|.*\| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)[0]

    assert (pushes == "yes") is (Operation.PUSH in offered)
    assert (deletes == "yes") is (Operation.NOT_FOUND_SEMANTICS in offered)


def test_every_provider_and_the_community_have_owners() -> None:
    """R101."""
    rules = dict(re.findall(r"^/providers/([a-z-]+)/\s+(@\S+)", (ROOT / "CODEOWNERS").read_text(), re.MULTILINE))

    assert set(rules) == {*PROVIDERS, "contrib"}
    assert (ROOT / "providers" / "contrib" / "README.md").is_file()


@pytest.mark.parametrize("cost", ["More to operate", "More to learn", "Ownership in many hands"])
def test_the_price_of_providers_outside_the_core_is_written_down(cost: str) -> None:
    """R173: each cost with its mitigation."""
    (said,) = re.findall(rf"^- \*\*{cost}\.\*\* (.+?)(?=\n- |\Z)", PAGE, re.MULTILINE | re.DOTALL)

    assert said.count(".") >= 2


def commands(target: str) -> str:
    """Return the commands that `make` would run for a target, once everything is set up."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True).stdout


def environment() -> dict[str, str]:
    """Without the variables by which the `make` that runs these tests would steer another one."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}


def test_every_change_passes_checks_and_fast_tests_and_tests_on_a_real_api_server() -> None:
    """R107."""
    script = (ROOT / ".ci" / "run").read_text()

    assert re.findall(r"^make (\S+)", script, re.MULTILINE) == [
        "check",
        "browser",
        "prometheus",
        "test",
        "test-cluster",
    ]
    assert re.search(r"pytest .*packages providers tests", commands("test"))
    assert re.search(r"pytest .*--apiserver=kube -m live", commands("test-cluster"))


@pytest.mark.parametrize("which", ["", "all"], ids=["each change", "each night"])
def test_the_newest_kubernetes_runs_everything_and_the_one_before_its_part(which: str, tmp_path: Path) -> None:
    """R151."""
    tools, stamps, runs = tmp_path / "bin", tmp_path / "stamps", tmp_path / "runs"
    for each in ("venv", "uv", "deps", "dists"):
        write(stamps / each, "")
    write(tools / "pytest", f'#!/bin/sh\nprintf "%s\\n" "$*" >> {runs}\n')
    write(tools / "python", "#!/bin/sh\necho 1.2.3 1.1.9\n")
    command = ["make", "test-cluster", f"BIN={tools}", f"STAMP={stamps}", f"KUBE_VERSIONS={which}"]

    subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)

    newest, before = (line.partition("-m live ")[2].split() for line in runs.read_text().splitlines())
    assert newest == ["libs", "packages", "providers", "tests"]
    assert before == newest if which else {"tests/api", "tests/crds", "libs/kuberun"} < set(before)
    assert all((ROOT / folder).is_dir() for folder in before)


@pytest.mark.parametrize("target", ["test", "test-cluster"])
def test_a_test_that_fails_fails_the_run_even_if_a_second_try_would_pass(target: str, tmp_path: Path) -> None:
    tools, stamps = tmp_path / "bin", tmp_path / "stamps"
    for each in ("venv", "uv", "deps", "dists", "apart-ministack", "apart-moto", "apart-openbao-ldap"):
        write(stamps / each, "")
    write(tools / "pytest", f'#!/bin/sh\necho run >> {tmp_path}/runs\ntest "$(wc -l < {tmp_path}/runs)" -gt 1\n')
    write(tools / "python", "#!/bin/sh\necho v1.2.3\n")
    command = ["make", target, f"BIN={tools}", f"STAMP={stamps}", "JOBS=1"]

    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)

    assert (done.returncode, (tmp_path / "runs").read_text()) == (2, "run\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_night_runs_conformance_and_end_to_end_tests_and_longer_trouble() -> None:
    """R108."""
    run = commands("nightly")

    for suite in ("soak", "crash", "faults", "conformance", "e2e"):
        assert f"tests/{suite}" in run
        assert list((ROOT / "tests" / suite).glob("test_*.py"))
    assert "ESO_SOAK_SECONDS=600" in run
    assert "test-cluster KUBE_VERSIONS=all" in run
    assert "ESO_CRASH_ROUNDS=100" in run
    assert "ESO_MALFORMED_SEEDS=300" in run
    malformed = "libs/localkube/tests/test_malformed_requests.py"
    assert malformed in run
    assert (ROOT / malformed).exists()


def test_a_release_has_a_wheel_of_the_core_and_one_of_each_provider() -> None:
    """R109: `test_core_wheel.py` looks into that of the core; `make test-images` builds all of them."""
    built = {each.folder.relative_to(ROOT).as_posix() for each in distributions().values()}

    assert "tools/dist.py dist wheel" in commands("dist")
    assert "packages/eso-operator" in built
    assert {f"providers/{name}" for name in PROVIDERS} <= built


def test_the_night_runs_the_tests_of_images_and_releases() -> None:
    assert "ESO_TEST_IMAGES=1" in commands("test-images")
    assert re.search(r"make.* test-images", (ROOT / "Makefile").read_text().partition("\nnightly:")[2], re.IGNORECASE)
