"""The example provider: short, complete, and it works. A new provider from the scaffold does too."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_sdk.scaffold import ScaffoldError, write
from eso_sdk.testing import ProviderServer, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteBatch,
    DeleteItem,
    FindQuery,
    PushBatch,
    PushItem,
    RemoteRef,
    Shape,
    ValidationState,
)

EXAMPLE = Path(__file__).parent.parent / "examples" / "notes.py"


@pytest.fixture(scope="module")
def notes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notes", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["notes"] = module  # where the CRD generator looks for the descriptions of fields
    spec.loader.exec_module(module)
    return module


def test_the_example_fits_in_sixty_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


async def test_the_example_reads_writes_finds_and_deletes(notes: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"open sesame")
    spec: dict[str, Any] = {"folder": str(tmp_path), "passwordRef": {"name": "n", "key": "k"}}
    context = call_context(notes.Notes, spec, {"/passwordRef": "open sesame"})
    login = PushItem("1", RemoteRef("team/login"), SecretBytes(b'{"user": "anna", "pin": 1}'))

    async with ProviderServer(notes.PROVIDER) as server:
        client = server.client
        validation = await client.validate(context)
        await client.push(context, PushBatch((login,)))
        whole = await client.get_one(context, "team/login", shape=Shape.MAP)
        user = await client.get_one(context, "team/login", property="user")
        no_property = await client.get_one(context, "team/login", property="none")
        found = await client.find(context, FindQuery(name_regexp="^team/"))
        deleted = [
            await client.delete(context, DeleteBatch((DeleteItem("1", RemoteRef("team/login")),))) for _ in range(2)
        ]
        gone = await client.get_one(context, "team/login")
        outside = await client.get_one(context, "../password")

    assert validation.state is ValidationState.READY
    assert whole.outcome == {"user": SecretBytes(b"anna"), "pin": SecretBytes(b"1")}
    assert user.outcome == SecretBytes(b"anna")
    assert isinstance(no_property.outcome, ProviderError)
    assert [entry.key for entry in found] == ["team/login"]
    assert [result.existed for (result,) in deleted] == [True, False]
    for missing in (gone, outside):
        assert isinstance(missing.outcome, ProviderError)
        assert missing.outcome.reason is ErrorReason.SECRET_NOT_FOUND


async def test_the_example_refuses_a_wrong_password(notes: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"open sesame")
    spec = {"folder": str(tmp_path), "passwordRef": {"name": "n", "key": "k"}}

    async with ProviderServer(notes.PROVIDER) as server:
        validation = await server.client.validate(call_context(notes.Notes, spec, {"/passwordRef": "guess"}))

    assert validation.error is not None
    assert validation.error.reason is ErrorReason.CREDENTIALS_REJECTED


def test_the_examples_kinds_describe_their_fields(notes: ModuleType) -> None:
    own, twin = (kind.crd() for kind in notes.PROVIDER.kinds_for_crds)

    schema = own["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["properties"]["folder"]["description"] == "Where the notes are."
    assert (own["spec"]["scope"], twin["spec"]["scope"]) == ("Namespaced", "Cluster")


# --- eso provider new ------------------------------------------------------------------------------------------------


def test_a_new_provider_passes_the_conformance_suite(tmp_path: Path) -> None:
    folder = tmp_path / "mine"

    write(folder, "my-notes")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
    assert " failed" not in run.stdout


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("vault", "vaults"),
        ("class", "classes"),
        ("box", "boxes"),
        ("batch", "batches"),
        ("my-registry", "myregistries"),
        ("key", "keys"),
        ("y", "ys"),
        ("v2", "v2s"),
    ],
)
def test_a_new_kind_has_an_english_plural(tmp_path: Path, name: str, plural: str) -> None:
    written = write(tmp_path, name)

    (provider,) = (path for path in written if path.name == "provider.py")
    assert f'plural="{plural}"' in provider.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["", "My", "a_b", "../up", "a/b", "-x", "x-", "9lives", "x" * 41])
def test_a_name_that_fits_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScaffoldError, match="is no name for a provider"):
        write(tmp_path / "mine", name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")

    with pytest.raises(ScaffoldError, match="is not empty"):
        write(tmp_path, "notes")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    written = write(tmp_path, "notes")

    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        "pyproject.toml",
        "README.md",
        "src/eso_provider_notes/__init__.py",
        "src/eso_provider_notes/provider.py",
        "src/eso_provider_notes/py.typed",
        "tests/test_conformance.py",
    }
