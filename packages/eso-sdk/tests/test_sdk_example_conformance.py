"""The example provider passes the suite that every provider must pass, over a real socket."""

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eso_sdk import Provider
from eso_sdk.testing import Fixture, Target, conformance_server, conformance_tests, from_plain

EXAMPLE = Path(__file__).parent.parent / "examples" / "notes.py"

test_conformance = conformance_tests("read", "write", "tls")


@pytest.fixture(scope="module")
def example() -> Provider:
    spec = importlib.util.spec_from_file_location("notes_in_conformance", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["notes_in_conformance"] = module
    spec.loader.exec_module(module)
    provider: Provider = module.PROVIDER
    return provider


@pytest.fixture
async def conformance_target(example: Provider) -> AsyncIterator[Target]:
    async with conformance_server(example) as target:
        yield target


@pytest.fixture
def conformance_fixture(tmp_path: Path) -> Fixture:
    (tmp_path / "password").write_bytes(b"open sesame")
    spec = {"folder": str(tmp_path), "passwordRef": {"name": "n", "key": "k"}}
    kind = {"kind": "Notes", "spec": spec, "credentials": {"/passwordRef": "open sesame"}, "invalid": [{}]}
    return from_plain({"kinds": [kind]})
