"""Providers with one mistake each fail the case about it; the same provider without the mistake passes (R105).

The mistakes are those that authors make: to ignore the status of an answer, and to ignore who pushed a value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from eso_conformance import CASES, CaseResult, Profile, Verdict, run
from eso_sdk import (
    AddressPolicy,
    DeleteItem,
    Fragment,
    HttpRequest,
    Provider,
    ProviderError,
    PushItem,
    PushOutcome,
    RemoteRef,
    SecretKeySelector,
    SourceSecret,
    Store,
    errors,
    pushed_value,
    reads,
    status_error,
    store_kind,
)
from eso_sdk.testing import conformance_server, from_plain

LOOPBACK = AddressPolicy.parse(["loopback"])
TOKEN = "the right token"
PAGES = "errors: never gives an error page of its backend as a value"
DELETES = "ownership: deletes nothing that another owner pushed"
OVERWRITES = "ownership: overwrites nothing that another owner pushed, and says OWNERSHIP_CONFLICT"


# --- a backend over HTTP ---------------------------------------------------------------------------------------------


class ServerConfig(Fragment, frozen=True, kw_only=True):
    """Where the values are."""

    url: str
    token_ref: SecretKeySelector


@store_kind(kind="Careful", plural="carefuls")
class Careful(Store[ServerConfig]):
    async def open(self) -> None:
        self._http = self.http_client("the backend")

    async def close(self) -> None:
        await self._http.close()

    async def _ask(self, key: str) -> Any:
        headers = {"Authorization": self.secret(self.config.token_ref).reveal().decode()}
        return await self._http.send(HttpRequest("GET", URL(self.config.url) / key, headers))

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        answer = await self._ask(ref.key)
        if answer.status == 404:
            raise errors.not_found(ref.key)
        if problem := status_error(answer, "the backend", self.clock):
            raise problem
        return bytes(answer.body)


@store_kind(kind="Careless", plural="carelesses")
class Careless(Careful):
    """Gives whatever came back."""

    async def get(self, ref: RemoteRef) -> bytes:
        return bytes((await self._ask(ref.key)).body)


@store_kind(kind="Halfway", plural="halfways")
class Halfway(Careful):
    """Knows 404 and no other status."""

    async def get(self, ref: RemoteRef) -> bytes:
        answer = await self._ask(ref.key)
        if answer.status == 404:
            raise errors.not_found(ref.key)
        return bytes(answer.body)


@asynccontextmanager
async def backend() -> AsyncIterator[str]:
    """One value behind a token, and pages of the usual kinds for everything else."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != TOKEN:
            return web.json_response({"message": "who are you?"}, status=401)
        match request.match_info["key"]:
            case "greeting":
                return web.Response(text="hello")
            case "broken":
                return web.Response(text="<html>bad gateway</html>", content_type="text/html", status=502)
            case _:
                return web.json_response({"error": "no such key"}, status=404)

    app = web.Application()
    app.router.add_get("/{key:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def results_of(provider: Provider, profile: Profile, fixture: Mapping[str, Any]) -> dict[str, CaseResult]:
    kinds = from_plain({"kinds": [{"kind": info.kind.kind, **fixture} for info in provider.kind_infos]})
    async with conformance_server(provider, addresses=LOOPBACK) as target:
        return {str(one.case): one async for one in run(target, [profile], kinds)}


async def read_with(store: type[Store[Any]], **changes: Any) -> CaseResult:
    async with backend() as url:
        fixture = {
            "spec": {"url": url, "tokenRef": {"name": "n", "key": "k"}},
            "credentials": {"/tokenRef": TOKEN},
            "known": [{"key": "greeting", "value": "hello"}],
            **changes,
        }
        return (await results_of(Provider(name="pages", version="1", kinds=(store,)), Profile.READ, fixture))[PAGES]


async def test_a_provider_that_looks_at_the_status_gives_no_error_page() -> None:
    result = await read_with(Careful, failing=["broken"])

    assert (result.verdict, result.why) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("store", "changes", "why"),
    [
        pytest.param(Careless, {}, "look at the status", id="every body is a value"),
        pytest.param(Halfway, {"failing": ["broken"]}, '"broken" has no value', id="the page of a broken backend"),
        pytest.param(Halfway, {}, "with wrong credentials", id="the answer to a wrong login"),
    ],
)
async def test_an_error_page_as_a_value_is_caught(store: type[Store[Any]], changes: dict[str, Any], why: str) -> None:
    result = await read_with(store, **changes)

    assert result.verdict is Verdict.FAILED
    assert why in result.why


# --- ownership -------------------------------------------------------------------------------------------------------


class NoConfig(Fragment, frozen=True, kw_only=True):
    """Nothing to configure."""


@store_kind(kind="Marked", plural="markeds")
class Marked(Store[NoConfig]):
    """Keeps the mark of each value."""

    values: ClassVar[dict[str, tuple[bytes, str]]] = {}

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        if ref.key not in self.values:
            raise errors.not_found(ref.key)
        return self.values[ref.key][0]

    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome:
        self._check(item)
        existed = item.remote.key in self.values
        self.values[item.remote.key] = (pushed_value(item), item.owner_token)
        return PushOutcome.UPDATED if existed else PushOutcome.CREATED

    async def delete(self, item: DeleteItem) -> bool:
        self._check(item)
        return self.values.pop(item.remote.key, None) is not None

    def _check(self, item: PushItem | DeleteItem) -> None:
        if self.values.get(item.remote.key, (b"", item.owner_token))[1] != item.owner_token:
            raise errors.not_ours(item.remote.key)


@store_kind(kind="Deleting", plural="deletings")
class Deleting(Marked):
    async def delete(self, item: DeleteItem) -> bool:
        return self.values.pop(item.remote.key, None) is not None


@store_kind(kind="Overwriting", plural="overwritings")
class Overwriting(Marked):
    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome:
        existed = item.remote.key in self.values
        self.values[item.remote.key] = (pushed_value(item), item.owner_token)
        return PushOutcome.UPDATED if existed else PushOutcome.CREATED


@store_kind(kind="Pretending", plural="pretendings")
class Pretending(Marked):
    """Leaves the value alone, and says that it wrote and deleted."""

    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome:
        try:
            return await super().push(item, source)
        except ProviderError:
            return PushOutcome.UPDATED

    async def delete(self, item: DeleteItem) -> bool:
        try:
            return await super().delete(item)
        except ProviderError:
            return True


@pytest.mark.parametrize(
    ("store", "fixture", "verdicts"),
    [
        pytest.param(Marked, {}, (Verdict.PASSED, Verdict.PASSED), id="respects marks"),
        pytest.param(Deleting, {}, (Verdict.FAILED, Verdict.PASSED), id="deletes the value of another owner"),
        pytest.param(Overwriting, {}, (Verdict.PASSED, Verdict.FAILED), id="overwrites the value of another owner"),
        pytest.param(Pretending, {}, (Verdict.FAILED, Verdict.FAILED), id="reports what it did not do"),
        pytest.param(
            Deleting,
            {"ownership": False},
            (Verdict.NOT_APPLICABLE, Verdict.NOT_APPLICABLE),
            id="claims no ownership",
        ),
    ],
)
async def test_marks_of_other_owners_are_respected(
    store: type[Store[Any]], fixture: dict[str, Any], verdicts: tuple[Verdict, Verdict]
) -> None:
    provider = Provider(name="marks", version="1", kinds=(store,))

    results = await results_of(provider, Profile.WRITE, fixture)

    assert (results[DELETES].verdict, results[OVERWRITES].verdict) == verdicts


def test_the_cases_of_this_page_exist() -> None:
    assert {PAGES, DELETES, OVERWRITES} <= {str(case) for case in CASES}
