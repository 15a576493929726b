"""The cluster that a command talks to: an explicit choice, `eso up` in this folder, or what kubectl would use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eso_cli.connecting import LOCAL, check_namespace, kubeconfig_for
from eso_cli.main import commands
from kubebase.meta import Kind, ObjectKey
from kubebase.testing.servers import ApiServer
from kuberun.errors import Forbidden

GIVEN = Path("given")


@pytest.mark.parametrize(
    ("given", "context", "environ", "chosen"),
    [
        pytest.param(None, "", {}, "local", id="eso up in this folder"),
        pytest.param(GIVEN, "", {}, "given", id="an option wins"),
        pytest.param(None, "", {"KUBECONFIG": "/x"}, "", id="KUBECONFIG wins"),
        pytest.param(None, "prod", {}, "", id="a context is one of the user's own files"),
        pytest.param(None, "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "local", id="eso up in a pod"),
    ],
)
def test_an_explicit_choice_wins_over_the_kubeconfig_of_this_folder(
    tmp_path: Path, given: Path | None, context: str, environ: dict[str, str], chosen: str
) -> None:
    (tmp_path / LOCAL).parent.mkdir()
    (tmp_path / LOCAL).touch()
    expected = {"local": tmp_path / LOCAL, "given": GIVEN, "": None}[chosen]

    assert kubeconfig_for(given, context, environ=environ, folder=tmp_path) == expected


def test_a_folder_without_eso_up_leaves_the_choice_to_the_usual_order(tmp_path: Path) -> None:
    assert kubeconfig_for(None, environ={}, folder=tmp_path) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `eso up` has run, as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    LOCAL.parent.mkdir()
    return tmp_path


MANIFEST = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
COMMANDS = [
    pytest.param(["status", "-A"], id="status"),
    pytest.param(["why", "es/db"], id="why"),
    pytest.param(["preflight"], id="preflight"),
    pytest.param(["migrate"], id="migrate"),
    pytest.param(["provider", "list", "--needed"], id="provider list"),
    pytest.param(["plan", "-f", "manifests"], id="plan"),
]


@pytest.mark.live
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_uses_the_cluster_of_this_folder_and_says_so(
    api_server: ApiServer, folder: Path, arguments: list[str]
) -> None:
    shutil.copy(api_server.kubeconfig, folder / LOCAL)
    (folder / "manifests").mkdir()
    (folder / "manifests" / "one.yaml").write_text(MANIFEST)

    told = CliRunner().invoke(commands, arguments)

    assert f"using {LOCAL} of this folder\n" in told.stderr
    assert "does not answer" not in told.stderr


@pytest.mark.parametrize("arguments", [each for each in COMMANDS if each.id != "plan"])
def test_a_cluster_that_does_not_answer_is_named(folder: Path, arguments: list[str]) -> None:
    cluster = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]"
    context = "contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c"
    (folder / LOCAL).write_text(f"{cluster}\n{context}\nusers: [{{name: u, user: {{token: t}}}}]\n")

    told = CliRunner().invoke(commands, arguments)

    assert told.exit_code == 2
    assert f"the address is that of {LOCAL}, context 'c'; start `eso up` in this folder" in told.stderr


class Denying:
    async def get(self, _: Kind[object], __: ObjectKey) -> object:
        raise Forbidden(403, "Forbidden", "no")


async def test_a_namespace_that_may_not_be_read_is_not_checked() -> None:
    await check_namespace(Denying(), "team")  # type: ignore[arg-type]  # a fake
