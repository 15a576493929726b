"""An exception that the author did not map: the operator gets the author's line, the log gets the traceback."""

import importlib
import io
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog

from eso_api.values import SecretBytes
from eso_sdk.logs import configure
from eso_sdk.redaction import MAX_TRACEBACK, traceback_of
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, PushBatch, PushItem, RemoteRef
from kubebase.clock import SystemClock

CANARIES = ("CANARY-token", "CANARY-spec-value", "CANARY-pushed", "CANARY-read")
PACKAGE = {
    "__init__.py": "",
    "backend.py": """
        def ask(http, url, token):
            return http(url, token)  # the author's innermost line
        """,
    "provider.py": """
        from eso_sdk import Fragment, Provider, SecretKeySelector, Store, pushed_value, store_kind
        from author_library import send
        from author_package.backend import ask


        class BrokenConfig(Fragment, frozen=True, kw_only=True):
            url: str
            token_ref: SecretKeySelector


        @store_kind(kind="Broken", plural="brokens")
        class Broken(Store[BrokenConfig]):
            async def get(self, ref):
                return ask(send, self.config.url, self.secret(self.config.token_ref).reveal().decode())

            async def push(self, item, source):
                raise RuntimeError(f"body was {pushed_value(item)!r}")


        PROVIDER = Provider(name="broken", version="1", kinds=(Broken,))
        """,
}
LIBRARY = """
    def send(url, token):
        raise OSError(f"GET {url} with {token} gave CANARY-read")
    """


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Provide an author's package and a library that it uses."""
    folder = tmp_path_factory.mktemp("author")
    files = {"author_library.py": LIBRARY} | {f"author_package/{name}": text for name, text in PACKAGE.items()}
    for name, text in files.items():
        path: Path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("author_package.provider")
    sys.path.remove(str(folder))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        for hook in ("sys.excepthook", "sys.unraisablehook", "threading.excepthook"):
            patched.setattr(hook, lambda *_: None)
        configure(SystemClock(), stream)
        yield stream
        structlog.reset_defaults()


def context_of(author: ModuleType) -> Any:
    spec = {"url": "https://CANARY-spec-value", "tokenRef": {"name": "n", "key": "k"}}
    return call_context(author.Broken, spec, {"/tokenRef": "CANARY-token"})


def failures(logged: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [line for line in lines if "traceback" in line]


async def test_the_error_names_the_authors_line_and_not_one_of_a_library(
    author: ModuleType, logged: io.StringIO
) -> None:
    async with InMemory(author.PROVIDER) as provider:
        outcome = (await provider.get_one(context_of(author), "a")).outcome

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.INTERNAL
    assert outcome.message == "the provider failed: OSError at backend.py:2"
    (line,) = failures(logged)
    assert line["error"] == "OSError at backend.py:2"


async def test_the_log_has_the_whole_way_in_source_lines_and_no_value(author: ModuleType, logged: io.StringIO) -> None:
    pushed = PushItem("1", RemoteRef("a"), SecretBytes(b"CANARY-pushed"))
    async with InMemory(author.PROVIDER) as provider:
        await provider.get_one(context_of(author), "a")
        await provider.push(context_of(author), PushBatch((pushed,)))

    read, written = (line["traceback"] for line in failures(logged))
    assert "return ask(send, self.config.url" in read
    assert "in send" in read
    assert read.endswith("OSError\n")
    assert 'raise RuntimeError(f"body was' in written
    assert [canary for canary in CANARIES if canary in logged.getvalue().replace("gave CANARY-read", "")] == []


async def test_a_batch_that_fails_at_one_place_is_logged_once(author: ModuleType, logged: io.StringIO) -> None:
    async with InMemory(author.PROVIDER) as provider:
        results = await provider.get(context_of(author), [GetItem(str(at), RemoteRef(str(at))) for at in range(50)])

    assert len(results) == 50
    assert len(failures(logged)) == 1


def test_a_traceback_shows_the_cause_and_stays_bounded() -> None:
    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        raise KeyError("CANARY-cause")

    try:
        try:
            deep(200)
        except KeyError as cause:
            raise ValueError("CANARY-outer") from cause
    except ValueError as exc:
        shown = traceback_of(exc)

    assert len(shown) <= MAX_TRACEBACK
    assert shown.index("KeyError\n") < shown.index("ValueError\n")
    assert "CANARY" not in shown.replace('KeyError("CANARY-cause")', "").replace('ValueError("CANARY-outer")', "")
