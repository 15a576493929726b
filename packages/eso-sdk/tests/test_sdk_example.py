"""The example provider, and a new provider from the scaffold, are short, complete and working."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import eso_sdk
import eso_sdk.testing
from eso_api.values import SecretBytes
from eso_sdk.scaffold import ScaffoldError, write
from eso_sdk.testing import InMemory, ProviderServer, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    PushBatch,
    PushItem,
    PushOutcome,
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


def test_the_example_stays_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 125


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "password").write_bytes(b"open sesame")
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def notes_in(notes: ModuleType, folder: Path) -> Context:
    spec = {"folder": str(folder), "passwordRef": {"name": "n", "key": "k"}}
    return call_context(notes.Notes, spec, {"/passwordRef": "open sesame"})


def pushing(value: bytes, owner: str = "us", **ref: str) -> PushBatch:
    return PushBatch((PushItem("1", RemoteRef("a", **ref), SecretBytes(value), owner_token=owner),))  # type: ignore[arg-type]  # texts only


def deleting(owner: str = "us") -> DeleteBatch:
    return DeleteBatch((DeleteItem("1", RemoteRef("a"), owner_token=owner),))


async def test_the_example_says_what_a_push_did(notes: ModuleType, folder: Path) -> None:
    async with InMemory(notes.PROVIDER) as provider:
        outcomes = [
            (await provider.push(notes_in(notes, folder), pushing(value)))[0].outcome for value in (b"1", b"1", b"2")
        ]

    assert outcomes == [PushOutcome.CREATED, PushOutcome.UNCHANGED, PushOutcome.UPDATED]


@pytest.mark.parametrize(
    "mark", [pytest.param(None, id="a note without a mark"), pytest.param("them", id="a note of another owner")]
)
async def test_the_example_changes_no_note_that_does_not_carry_its_mark(
    notes: ModuleType, folder: Path, mark: str | None
) -> None:
    (folder / "a.txt").write_bytes(b"theirs")
    if mark is not None:
        (folder / "a.owner").write_text(mark, encoding="utf-8")
    async with InMemory(notes.PROVIDER) as provider:
        context = notes_in(notes, folder)
        (pushed,) = await provider.push(context, pushing(b"ours"))
        (deleted,) = await provider.delete(context, deleting())

    for error in (pushed.outcome, deleted.error):
        assert isinstance(error, ProviderError)
        assert error.reason is ErrorReason.OWNERSHIP_CONFLICT
    assert (folder / "a.txt").read_bytes() == b"theirs"


async def test_the_example_writes_no_property(notes: ModuleType, folder: Path) -> None:
    async with InMemory(notes.PROVIDER) as provider:
        (pushed,) = await provider.push(notes_in(notes, folder), pushing(b"1", property="user"))

    assert isinstance(pushed.outcome, ProviderError)
    assert pushed.outcome.reason is ErrorReason.INVALID_REQUEST
    assert names_in(folder) == ["password"]


async def test_the_example_names_the_folder_that_has_no_password(notes: ModuleType, tmp_path: Path) -> None:
    async with InMemory(notes.PROVIDER) as provider:
        validation = await provider.validate(notes_in(notes, tmp_path))

    assert validation.error is not None
    assert validation.error.reason is ErrorReason.CONFIG_INVALID
    assert validation.error.message.startswith("/folder: ")


async def test_the_example_does_not_block_the_loop(
    notes: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file access runs in another thread than the event loop's."""
    loop_thread, seen = threading.get_ident(), set()

    def noticing(access: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(*given: Any, **more: Any) -> Any:
            seen.add((access.__name__, threading.get_ident() == loop_thread))
            return access(*given, **more)

        return noticed

    for name in ("read_bytes", "write_bytes", "read_text", "write_text", "is_file", "unlink", "replace", "glob"):
        monkeypatch.setattr(Path, name, noticing(getattr(Path, name)))
    async with InMemory(notes.PROVIDER) as provider:
        context = notes_in(notes, folder)
        for value in (b"1", b"2"):
            await provider.push(context, pushing(value))
        await provider.get_one(context, "a")
        await provider.find(context, FindQuery(name_regexp="a"))
        await provider.delete(context, deleting())

    assert {name for name, _ in seen} >= {"read_bytes", "write_bytes", "read_text", "is_file", "unlink", "glob"}
    assert {name for name, in_loop in seen if in_loop} == set()


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


# --- one door ---------------------------------------------------------------------------------------------------------


def imports_of(source: str) -> set[str]:
    """Return the modules of this workspace that a source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module)
    return {name for name in found if name.startswith(("eso_", "kuberun")) and not name.startswith("eso_provider_")}


def test_the_example_imports_from_the_sdk_only() -> None:
    assert imports_of(EXAMPLE.read_text(encoding="utf-8")) == {"eso_sdk"}


def test_a_new_provider_imports_from_the_sdk_and_its_tests_from_the_sdks_testing(tmp_path: Path) -> None:
    written = [path for path in write(tmp_path, "weather") if path.suffix == ".py"]

    used = {path.name: imports_of(path.read_text(encoding="utf-8")) for path in written}
    assert used == {"__init__.py": set(), "provider.py": {"eso_sdk"}, "test_conformance.py": {"eso_sdk.testing"}}
    assert 'dependencies = ["eso-sdk"]' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [eso_sdk, eso_sdk.testing], ids=["eso_sdk", "eso_sdk.testing"])
def test_every_name_of_the_door_is_there(module: ModuleType) -> None:
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_the_docstring_of_the_door_names_what_there_is() -> None:
    assert eso_sdk.__doc__ is not None
    table = [line[28:] for line in eso_sdk.__doc__.splitlines() if line.startswith("    ") and line[4] != " "]
    named = {name for line in table for name in re.findall(r"[A-Za-z_]+", re.sub(r"\(.*?\)|\bthe module\b", "", line))}

    assert len(named) > 20
    assert named - set(eso_sdk.__all__) == set()


def test_the_door_loads_no_http_client_no_server_and_no_suite() -> None:
    """A provider without HTTP must not load some 28 MiB of it."""
    heavy = "aiohttp", "grpc", "re2", "eso_conformance", "pytest"
    program = f"import eso_sdk, sys; print([name for name in {heavy} if name in sys.modules])"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert shown.stdout.strip() == "[]"


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
