"""How a migration verifies values, and which options it accepts. Pure, but for one run of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_cli.migrate import MigrateOptions, run
from eso_testkit.tools.migrations import TO_S, forth, from_generator, password, pusher, reader, store
from eso_tools.migrate import probes
from eso_tools.migrate.inventory import Id, Inventory, id_of

# --- verification -----------------------------------------------------------------------------------------------------


def test_digests_are_compared_key_by_key() -> None:
    v1 = {"a": "1", "b": "2", "c": "3", "eso-migrate": "x"}
    v2 = {"a": "1", "b": "9", "d": "4", "eso-migrate": "x"}

    assert probes.compare(v1, v2) == {
        "a": "same",
        "b": "differs",
        "c": "only through the v1 reference",
        "d": "only through the v2 reference",
    }


def test_a_probe_reads_stores_and_never_generators() -> None:
    user = reader(dataFrom=[*from_generator()["spec"]["dataFrom"], {"extract": {"key": "r"}}], refreshInterval=0)
    plan = forth(store(), password(), user)

    (pair,) = probes.pairs(Inventory([user]), plan.switches[0])

    assert isinstance(pair, probes.Pair)
    assert pair.v1 == {"secretStoreRef": {"name": "s"}, "dataFrom": [{"extract": {"key": "r"}}]}
    assert pair.v2["secretStoreRef"] == TO_S
    spec = probes.probe(pair.user, pair.v2, "v2", "salt")["spec"]
    assert spec["target"]["creationPolicy"] == "Owner"
    assert "sha256sum" in spec["target"]["template"]["templateFrom"][0]["literal"]


RECORDED = {"match": {"secretKey": "k", "remoteRef": {"remoteKey": "r", "property": "p"}}}


def test_of_a_pushsecret_the_recorded_values_are_read() -> None:
    user = pusher({"name": "s"}) | {"status": {"syncedPushSecrets": {"SecretStore/s": {"r/p": RECORDED}}}}

    (pair,) = probes.pairs(Inventory([user]), forth(store(), user).switches[0])

    assert isinstance(pair, probes.Pair)
    read = {"secretKey": "value-0", "remoteRef": {"key": "r", "property": "p"}}
    assert pair.v1 == {"data": [{**read, "sourceRef": {"storeRef": {"kind": "SecretStore", "name": "s"}}}]}
    assert pair.v2 == {"data": [{**read, "sourceRef": {"storeRef": TO_S}}]}
    assert pair.names == {"value-0": "r/p"}


def test_a_value_in_another_namespace_of_the_backend_cannot_be_verified() -> None:
    moved = {**RECORDED, "metadata": {"spec": {"remoteNamespace": "elsewhere"}}}
    user = pusher({"name": "s"}) | {"status": {"syncedPushSecrets": {"SecretStore/s": {"r/p": moved}}}}

    (verdict,) = probes.pairs(Inventory([user]), forth(store(), user).switches[0])

    assert isinstance(verdict, probes.Verdict)
    assert not verdict.good


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(MigrateOptions(files=("x",), apply=True), "--apply changes a cluster", id="files and --apply"),
        pytest.param(MigrateOptions(output=Path("x"), apply=True), "leave one out", id="two outputs"),
        pytest.param(MigrateOptions(verify=True), "add --apply", id="--verify writes probes"),
        pytest.param(
            MigrateOptions(rollback=True, apply=True, verify=True), "leave out --verify", id="--verify on the way back"
        ),
        pytest.param(MigrateOptions(apply=True, verify=True), "", id="--apply --verify"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: MigrateOptions, words: str) -> None:
    assert words in options.problem()
    assert bool(options.problem()) is bool(words)


def test_files_are_read_and_written_without_a_cluster(eso_inside: Any, tmp_path: Path) -> None:
    """Exit code 1 says that something is left, which standard error names."""
    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all([store(), store("t", "a", {"chef": {}}), reader()]))

    done = eso_inside("migrate", "-f", str(file))

    assert done.returncode == 1, done.stderr
    assert [id_of(each) for each in yaml.safe_load_all(done.stdout)] == [
        Id("provider.secretstore.external-secrets.io", "Fake", "a", "s"),
        Id("secretstore.external-secrets.io", "SecretStore", "a", "s"),
        Id("external-secrets.io", "ExternalSecret", "a", "es"),
    ]
    assert "SecretStore a/t: no installed provider serves spec.provider.chef" in done.stderr
    assert eso_inside("migrate", "-f", str(tmp_path / "none.yaml")).returncode == 2


def test_a_folder_without_manifests_is_an_error_of_commands_that_read_files(eso_inside: Any, tmp_path: Path) -> None:
    place = str(tmp_path)
    commands = (["migrate"], ["preflight"], ["render"], ["provider", "list", "--needed"])

    answers = [eso_inside(*command, "-f", place) for command in commands]

    assert [answer.returncode for answer in answers] == [2] * len(commands)
    assert all(f"{place}: holds no manifest" in answer.stderr for answer in answers)


def test_a_file_that_cannot_be_written_is_named_in_one_sentence(eso_inside: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "in.yaml", tmp_path / "out" / "a" / "fake.provider.secretstore.external-secrets.io-s.yaml"
    file.write_text(yaml.safe_dump_all([store()]))
    out.parent.mkdir(parents=True)
    out.symlink_to("/dev/full")

    done = eso_inside("migrate", "-f", str(file), "--output-dir", str(tmp_path / "out"))

    assert (done.returncode, done.stderr) == (2, f"eso migrate: {out}: No space left on device\n")


async def test_of_files_a_rollback_names_the_objects_to_delete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R168."""
    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all([store(), *forth(store()).made, reader(secretStoreRef=TO_S)]))

    code = await run(MigrateOptions(files=(str(file),), rollback=True))

    printed = capsys.readouterr()
    (back,) = yaml.safe_load_all(printed.out)
    assert code == 0
    assert back["spec"]["secretStoreRef"] == {"kind": "SecretStore", "name": "s"}
    assert "delete Fake a/s of provider.secretstore.external-secrets.io once no object refers to it" in printed.err
