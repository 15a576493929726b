"""The Python examples of the guide for authors run."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Provider, Store, errors, reads, store_kind
from eso_sdk.addresses import AddressPolicy
from eso_sdk.extract import property_in
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GenerateRequest, GetItem, RemoteRef

LOOPBACK = AddressPolicy.parse(["loopback"])
GUIDE = (Path(__file__).resolve().parents[3] / "docs/guides/write-a-provider.md").read_text(encoding="utf-8")


class NoConfig(Fragment, frozen=True, kw_only=True):
    """Nothing to configure."""


class Backend:
    """Reads many keys at once."""

    async def read(self, keys: set[str]) -> dict[str, bytes]:
        return {key: value for key, value in {"a": b"1", "b": b'{"c": "2"}'}.items() if key in keys}


def shown(under: str) -> str:
    """Return the Python code of one section."""
    section = GUIDE.partition(f"## {under}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return str(code)


async def test_asking_over_http_as_the_guide_shows_it() -> None:
    names: dict[str, Any] = {}
    exec(shown("Ask a backend over HTTP"), names)  # noqa: S102 - the guide's own code

    @dataclass(slots=True)
    class KeepServer(StandIn):
        async def respond(self, asked: StandinRequest) -> StandinResponse:
            if asked.headers.get("authorization") != "Bearer t-1":
                return StandinResponse(401)
            return StandinResponse(200, {"value": "1"}) if asked.path == "/values/a" else StandinResponse(404)

    with KeepServer.started() as server:
        async with InMemory(names["PROVIDER"], addresses=LOOPBACK) as provider:
            spec = {"server": server.url, "token": {"name": "keep", "key": "token"}}
            context = call_context(names["Keep"], spec, {"/token": "t-1"})
            found = [(await provider.get_one(context, key)).outcome for key in ("a", "z")]

    assert found[0] == SecretBytes(b"1")
    assert isinstance(found[1], ProviderError)
    assert found[1].reason is ErrorReason.SECRET_NOT_FOUND


async def test_reading_in_batches_as_the_guide_shows_it() -> None:
    names: dict[str, Any] = {
        "Base": Store[NoConfig],
        "reads": reads,
        "errors": errors,
        "property_in": property_in,
        "ProviderError": ProviderError,
        "Backend": Backend,
    }
    exec(f"class Shelf(Base):\n    backend = Backend()\n{textwrap.indent(shown('Read in batches'), '    ')}", names)  # noqa: S102 - the guide's own code
    shelf = store_kind(kind="Shelf", plural="shelves")(names["Shelf"])
    refs = {
        "value": RemoteRef("a"),
        "property": RemoteRef("b", property="c"),
        "no property": RemoteRef("b", property="x"),
        "no key": RemoteRef("z"),
    }

    async with InMemory(Provider(name="shelf", version="1", kinds=(shelf,))) as provider:
        results = await provider.get(call_context(shelf), [GetItem(name, ref) for name, ref in refs.items()])

    outcomes = {one.item_id: getattr(one.outcome, "reason", one.outcome) for one in results}
    assert outcomes == {
        "value": SecretBytes(b"1"),
        "property": SecretBytes(b"2"),
        "no property": ErrorReason.PROPERTY_NOT_FOUND,
        "no key": ErrorReason.SECRET_NOT_FOUND,
    }


async def test_the_generator_of_the_guide_makes_values() -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    exec(shown("Make values"), names)  # noqa: S102 - the guide's own code

    async with InMemory(names["PROVIDER"]) as provider:
        made = await provider.generate(call_context(names["Pin"], {"digits": 6}), GenerateRequest("once"))

    assert re.fullmatch(rb"[0-9]{6}", made.data["pin"].reveal())
