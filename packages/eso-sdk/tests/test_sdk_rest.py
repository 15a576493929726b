"""The kit for REST backends against a real server on this machine."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from yarl import URL

from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Provider, Store, store_kind
from eso_sdk.addresses import AddressPolicy
from eso_sdk.backend import Opening
from eso_sdk.credentials import Credentials
from eso_sdk.errors import not_found, with_status
from eso_sdk.logins import FixedHeaders, Grant, LoginHeaders, basic, bearer, digest, join_login
from eso_sdk.metrics import Metrics
from eso_sdk.rest import Rest, RestRequest, RestSettings, next_link, next_page, segments
from eso_sdk.testing.standin import StandIn, StandinRequest, StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ObjectRef
from kubebase.testing.clock import VirtualClock

LOOPBACK = AddressPolicy.parse(["loopback"])
CANARY = "CANARY-51c0"
HOLDER = ObjectRef("v1", "Keep", "team", "keep", uid="1", generation=1)


class NoConfig(Fragment, frozen=True, kw_only=True):
    """Nothing to configure."""


@store_kind(kind="Keep", plural="keeps")
class Keep(Store[NoConfig]):
    """A store whose tests use its kit directly."""

    async def get(self, ref: Any) -> bytes:
        raise NotImplementedError


class Entry(msgspec.Struct):
    value: str


@dataclass(slots=True)
class Shelf(StandIn):
    """Values by name with ETags and pages; one token is accepted, but not for every value."""

    token: str = "good"
    denied: set[str] = field(default_factory=set)
    """Names for which the token gets a 401 although it is valid."""
    values: dict[str, str] = field(default_factory=lambda: {"a": "1", "b": "2", "c": "3"})

    async def respond(self, asked: StandinRequest) -> StandinResponse:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return StandinResponse(401, {"echo": CANARY})
        if asked.segments[-1] in self.denied:
            return StandinResponse(401, {"echo": CANARY})
        match asked.method, asked.segments:
            case "GET", ("values",):
                return self._page(asked)
            case "GET", ("values", name) if name in self.values:
                etag = f'"{hashlib.sha256(self.values[name].encode()).hexdigest()}"'
                if asked.headers.get("if-none-match") == etag:
                    return StandinResponse(304, headers={"ETag": etag})
                return StandinResponse(200, {"value": self.values[name]}, {"ETag": etag})
            case "PUT", ("values", name):
                self.values[name] = asked.json()["value"]
                return StandinResponse(204)
            case "POST", ("echo",):
                return StandinResponse(
                    200, {"type": asked.headers.get("content-type", ""), "body": asked.body.decode()}
                )
            case _:
                return StandinResponse(404, {"echo": CANARY})

    def _page(self, asked: StandinRequest) -> StandinResponse:
        page, names = int(asked.query.get("page", "1")), sorted(self.values)
        headers = {}
        if page < len(names):
            headers = {"X-Next-Page": str(page + 1), "Link": f'<{self.url}/values?page={page + 1}>; rel="next"'}
        return StandinResponse(200, [names[page - 1]], headers)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are on this machine, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with Shelf.started() as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Keep:
    opening = Opening(NoConfig(), HOLDER, Credentials(NoConfig(), ()), clock, Metrics("keep").api_calls, LOOPBACK)
    assert Provider(name="keep", version="1", kinds=(Keep,)).served
    return Keep(opening)


@pytest.fixture
async def rest(store: Keep, shelf: Shelf) -> AsyncIterator[Rest]:
    made = of(store, shelf)
    yield made
    await made.close()


def of(store: Keep, shelf: Shelf, token: str = "good", **settings: Any) -> Rest:
    return Rest(
        store,
        RestSettings(f"keep {shelf.url}", URL(shelf.url), field="/server", **settings),
        FixedHeaders(bearer(SecretBytes(token.encode()))),
    )


async def error_of(sending: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await sending
    assert CANARY not in str(caught.value)
    return caught.value


async def test_a_typed_answer_comes_back(rest: Rest) -> None:
    answer = await rest.get(segments("values", "a"), call="GetValue")

    assert answer.read(Entry).value == "1"
    assert "value" not in repr(answer)


async def test_json_and_forms_are_sent_with_their_content_type(rest: Rest) -> None:
    as_json = await rest.send(RestRequest("POST", "echo", "Echo", json={"x": "ä"}))
    as_form = await rest.send(RestRequest("POST", "echo", "Echo", form={"x": "a b"}))

    assert as_json.json() == {"type": "application/json", "body": '{"x":"ä"}'}
    assert as_form.json() == {"type": "application/x-www-form-urlencoded", "body": "x=a+b"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(403, ErrorReason.PERMISSION_DENIED, id="403 is a denial"),
        pytest.param(404, ErrorReason.BACKEND_ERROR, id="404 is no missing key unless the caller says so"),
        pytest.param(429, ErrorReason.RATE_LIMITED, id="429 is throttling"),
        pytest.param(503, ErrorReason.BACKEND_UNAVAILABLE, id="503 is unavailable"),
        pytest.param(302, ErrorReason.BACKEND_ERROR, id="a redirect is not followed"),
    ],
)
async def test_a_status_becomes_a_reason_and_quotes_nothing(
    rest: Rest, shelf: Shelf, status: int, reason: ErrorReason
) -> None:
    shelf.script("GET /values/a", StandinResponse(status, {"echo": CANARY}))

    error = await error_of(rest.get("values/a", call="GetValue"))

    assert error.reason is reason
    assert f"HTTP {status}" in error.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x is denied; allow it", "x is denied (HTTP 403); allow it", id="before the remedy"),
        pytest.param("x is denied", "x is denied (HTTP 403)", id="at the end without a remedy"),
        pytest.param("x answers with HTTP 403", "x answers with HTTP 403", id="once"),
    ],
)
def test_a_status_is_added_to_a_message(before: str, after: str) -> None:
    assert with_status(ProviderError(ErrorReason.PERMISSION_DENIED, before), 403).message == after


def test_a_missing_key_is_told_without_a_status() -> None:
    assert with_status(not_found("a"), 400).message == '"a" does not exist'


async def test_an_answer_of_another_shape_is_an_error_that_quotes_nothing(rest: Rest, shelf: Shelf) -> None:
    shelf.script("GET /values/a", StandinResponse(200, {"value": [CANARY]}))
    answer = await rest.get("values/a", call="GetValue")

    with pytest.raises(ProviderError) as caught:
        answer.read(Entry)

    assert CANARY not in str(caught.value)


async def test_after_429_the_identity_waits_as_long_as_the_backend_says(
    store: Keep, shelf: Shelf, rest: Rest, clock: VirtualClock
) -> None:
    shelf.script("GET /values/a", StandinResponse(429, headers={"Retry-After": "30"}))
    first = await error_of(rest.get("values/a", call="GetValue"))
    neighbour = of(store, shelf)

    second = await error_of(neighbour.get("values/b", call="GetValue"))
    await neighbour.close()
    await clock.advance(31)
    later = await rest.get("values/a", call="GetValue")

    assert (first.reason, second.reason, later.status) == (ErrorReason.RATE_LIMITED, ErrorReason.RATE_LIMITED, 200)
    assert first.message.endswith("limits its calls: HTTP 429")
    assert second.message == first.message
    assert len(shelf.calls) == 2


async def test_a_backend_may_tell_its_limits_in_another_way(store: Keep, shelf: Shelf, clock: VirtualClock) -> None:
    limited = of(store, shelf, limits=lambda answer, _: 20.0 if answer.headers.get("X-Left") == "0" else None)
    shelf.script(
        "GET /values/a", StandinResponse(403, headers={"X-Left": "0"}), StandinResponse(403, headers={"X-Left": "7"})
    )

    first, second = [await error_of(limited.get("values/a", call="GetValue")) for _ in range(2)]
    await clock.advance(21)
    third = await error_of(limited.get("values/a", call="GetValue"))

    assert [each.reason for each in (first, second)] == [ErrorReason.RATE_LIMITED] * 2
    assert first.retry_after == pytest.approx(20)
    assert third.reason is ErrorReason.PERMISSION_DENIED
    assert len(shelf.calls) == 2
    await limited.close()


async def test_a_rejected_token_costs_one_call_a_minute_for_all_stores_that_have_it(
    store: Keep, shelf: Shelf, clock: VirtualClock
) -> None:
    bad, same = of(store, shelf, "bad"), of(store, shelf, "bad")

    reasons = [(await error_of(each.get("values/a", call="GetValue"))).reason for each in (bad, same, bad)]
    before = len(shelf.calls)
    await clock.advance(61)
    await error_of(bad.get("values/a", call="GetValue"))

    assert reasons == [ErrorReason.CREDENTIALS_REJECTED] * 3
    assert (before, len(shelf.calls)) == (1, 2)
    await bad.close()
    await same.close()


async def test_a_rejected_token_is_remembered_when_its_session_ends(store: Keep, shelf: Shelf) -> None:
    for _ in range(3):
        bad = of(store, shelf, "bad")
        await error_of(bad.get("values/a", call="GetValue"))
        await bad.close()

    assert len(shelf.calls) == 1


async def test_a_401_to_a_token_that_has_just_worked_denies_one_resource(
    rest: Rest, shelf: Shelf, clock: VirtualClock
) -> None:
    shelf.denied = {"b"}
    await rest.get("values/a", call="GetValue")

    denied = [await error_of(rest.get("values/b", call="GetValue")) for _ in range(3)]
    others = [(await rest.get(f"values/{name}", call="GetValue")).status for name in ("a", "c")]
    await clock.advance(61)
    rejected = [await error_of(rest.get(f"values/{name}", call="GetValue")) for name in ("b", "a")]

    assert {(each.reason, each.backend_code) for each in denied} == {(ErrorReason.PERMISSION_DENIED, "401")}
    assert others == [200, 200]
    assert [each.reason for each in rejected] == [ErrorReason.CREDENTIALS_REJECTED] * 2
    assert len(shelf.calls) == 7


async def test_another_token_is_not_held_up_by_a_rejected_one(store: Keep, shelf: Shelf, rest: Rest) -> None:
    bad = of(store, shelf, "bad")
    await error_of(bad.get("values/a", call="GetValue"))

    assert (await rest.get("values/a", call="GetValue")).status == 200
    await bad.close()


async def test_a_rejected_login_without_authorization_holds_up_no_other_tenant(store: Keep, shelf: Shelf) -> None:
    one, other = (Rest(store, RestSettings("keep", URL(shelf.url), field="/server")) for _ in range(2))
    good = RestRequest("GET", "values/a", "Login", headers=bearer(SecretBytes(b"good")))

    refused = await error_of(one.get("values/a", call="Login"))

    assert refused.reason is ErrorReason.CREDENTIALS_REJECTED
    assert (await other.send(good)).status == 200
    for each in (one, other):
        await each.close()


async def test_a_missing_key_costs_one_call_a_minute(rest: Rest, shelf: Shelf, clock: VirtualClock) -> None:
    statuses = [(await rest.get("values/z", call="GetValue", allowed=(404,))).status for _ in range(3)]
    before = len(shelf.calls)
    await clock.advance(61)
    await rest.get("values/z", call="GetValue", allowed=(404,))

    assert (statuses, before, len(shelf.calls)) == ([404] * 3, 1, 2)


async def test_a_key_that_this_identity_writes_is_not_missing_any_more(rest: Rest) -> None:
    absent = await rest.get("values/z", call="GetValue", allowed=(404,))
    rest.note_missing("z")

    await rest.put("values/z", {"value": "26"}, call="PutValue")

    assert absent.status == 404
    assert not rest.is_missing("z")
    assert (await rest.get("values/z", call="GetValue", allowed=(404,))).read(Entry).value == "26"


async def test_an_unchanged_answer_is_not_sent_again(store: Keep, shelf: Shelf) -> None:
    rest = of(store, shelf, etags=True)

    values: list[str] = [(await rest.get("values/a", call="GetValue")).read(Entry).value for _ in range(2)]
    shelf.values["a"] = "new"
    values.append((await rest.get("values/a", call="GetValue")).read(Entry).value)

    assert values == ["1", "1", "new"]
    assert ["if-none-match" in call.headers for call in shelf.calls] == [False, True, True]
    await rest.close()


@pytest.mark.parametrize("following", [next_link, next_page])
async def test_pages_are_followed_to_the_last(rest: Rest, following: Any) -> None:
    request = RestRequest("GET", "values", "ListValues")

    names = [name async for page in rest.pages(request, following) for name in page.json()]

    assert names == ["a", "b", "c"]


async def test_a_list_that_never_ends_is_an_error(rest: Rest) -> None:
    endless = rest.pages(RestRequest("GET", "values", "ListValues"), lambda _answer, asked: asked)

    async def walked() -> None:
        async for _ in endless:
            pass

    assert "pages" in (await error_of(walked())).message


async def test_sporadic_failures_are_repeated_up_to_three_times(store: Keep, shelf: Shelf, clock: VirtualClock) -> None:
    rest = of(store, shelf, repeats=lambda answer: answer.status == 403)
    shelf.script("GET /values/a", StandinResponse(403), StandinResponse(403))

    reading = asyncio.ensure_future(rest.get("values/a", call="GetValue"))
    while not reading.done():
        await asyncio.sleep(0.005)  # real sockets; only the pauses between attempts are virtual
        await clock.advance(0.1)
    answer = await reading

    assert (answer.status, len(shelf.calls)) == (200, 3)
    await rest.close()


async def test_stores_of_one_identity_share_connections_and_the_last_one_closes_them(store: Keep, shelf: Shelf) -> None:
    one, two = of(store, shelf), of(store, shelf)

    await one.close()
    after = await two.get("values/a", call="GetValue")
    await two.close()

    assert after.status == 200
    assert (await error_of(two.get("values/a", call="GetValue"))).reason is ErrorReason.INTERNAL


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_key_that_would_lead_elsewhere_is_refused(part: str) -> None:
    with pytest.raises(ProviderError):
        segments("values", part)


def test_a_key_with_slashes_stays_one_segment() -> None:
    assert segments("values", "a/b c?") == "values/a%2Fb%20c%3F"


@pytest.mark.parametrize("token", [b"", b"a b", b"a\n", "ä".encode()])
def test_a_token_that_no_header_can_carry_is_a_clear_error(token: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        bearer(SecretBytes(token), "/auth/token")

    assert caught.value.message.startswith("/auth/token: ")


def test_basic_authorization_is_encoded() -> None:
    assert basic(SecretBytes(b"u"), SecretBytes(b"")) == {"Authorization": "Basic dTo="}


async def test_a_server_with_its_own_authority_is_trusted_through_its_bundle(store: Keep, tmp_path: Path) -> None:
    with Shelf.started(tls_folder=tmp_path) as shelf:
        trusting, other = of(store, shelf, ca=shelf.ca), of(store, shelf)

        assert (await trusting.get("values/a", call="GetValue")).status == 200
        assert "certificate" in (await error_of(other.get("values/a", call="GetValue"))).message
        await trusting.close()
        await other.close()


class Office:
    """Grants numbered tokens that the shelf accepts from then on, or refuses."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.logins = 0
        self.refusal: ProviderError | None = None

    async def log_in(self) -> Grant:
        self.logins += 1
        if self.refusal is not None:
            raise self.refusal
        self.shelf.token = f"t-{self.logins}"
        return Grant(SecretBytes(self.shelf.token.encode()), 600.0)

    def rest(self, store: Keep, clock: VirtualClock) -> Rest:
        proof = digest("office")
        settings = RestSettings("keep", URL(self.shelf.url), field="/server")
        return Rest(store, settings, LoginHeaders(join_login(proof, clock, self.log_in), proof, bearer))


@pytest.fixture
def office(shelf: Shelf) -> Office:
    return Office(shelf)


@pytest.fixture
async def logged_in(store: Keep, clock: VirtualClock, office: Office) -> AsyncIterator[Rest]:
    made = office.rest(store, clock)
    yield made
    await made.close()


async def test_a_token_that_the_backend_rejects_is_replaced(logged_in: Rest, shelf: Shelf, office: Office) -> None:
    await logged_in.get("values/a", call="GetValue")
    shelf.token = "another"

    answer = await logged_in.get("values/a", call="GetValue")

    assert answer.status == 200
    assert (office.logins, len(shelf.calls)) == (2, 3)


async def test_many_denied_resources_cost_one_login_a_minute_and_hold_up_no_others(
    logged_in: Rest, shelf: Shelf, office: Office, clock: VirtualClock
) -> None:
    shelf.denied = {f"d{number}" for number in range(20)}
    await logged_in.get("values/a", call="GetValue")

    denied = await asyncio.gather(
        *(error_of(logged_in.get(f"values/{name}", call="GetValue")) for name in sorted(shelf.denied))
    )
    denied += [await error_of(logged_in.get(f"values/{name}", call="GetValue")) for name in sorted(shelf.denied)]
    logins = office.logins
    allowed = await logged_in.get("values/a", call="GetValue")
    await clock.advance(61)
    denied.append(await error_of(logged_in.get("values/d1", call="GetValue")))

    assert {(each.reason, each.backend_code) for each in denied} == {(ErrorReason.PERMISSION_DENIED, "401")}
    assert allowed.status == 200
    assert (logins, office.logins) == (2, 3)


async def test_credentials_that_never_worked_are_denied_one_request_at_a_time_if_their_login_succeeds(
    logged_in: Rest, shelf: Shelf, office: Office
) -> None:
    shelf.denied = {"b"}

    denied = await error_of(logged_in.get("values/b", call="GetValue"))

    assert denied.reason is ErrorReason.PERMISSION_DENIED
    assert (await logged_in.get("values/a", call="GetValue")).status == 200
    assert office.logins == 2


async def test_a_login_that_does_not_answer_fails_the_rejected_request_and_no_other(
    logged_in: Rest, shelf: Shelf, office: Office
) -> None:
    await logged_in.get("values/a", call="GetValue")
    shelf.denied = {"b"}
    office.refusal = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")

    failed = [await error_of(logged_in.get("values/b", call="GetValue")) for _ in range(3)]
    other = await logged_in.get("values/a", call="GetValue")

    assert [each.reason for each in failed] == [ErrorReason.BACKEND_UNAVAILABLE] * 3
    assert (other.status, office.logins) == (200, 2)


async def test_a_refused_login_after_a_rejected_token_is_remembered_for_a_minute(
    logged_in: Rest, shelf: Shelf, office: Office, clock: VirtualClock
) -> None:
    await logged_in.get("values/a", call="GetValue")
    shelf.token = "another"
    office.refusal = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "wrong")

    refused = [await error_of(logged_in.get("values/a", call="GetValue")) for _ in range(5)]
    logins, calls = office.logins, len(shelf.calls)
    await clock.advance(61)
    office.refusal = None
    later = await logged_in.get("values/a", call="GetValue")

    assert {each.reason for each in refused} == {ErrorReason.CREDENTIALS_REJECTED}
    assert (logins, calls) == (2, 2)
    assert later.status == 200


async def test_a_missing_answer_counts_only_for_requests_with_the_same_body(shelf: Shelf, store: Keep) -> None:
    rest = Rest(store, RestSettings("the shelf", URL(shelf.url)), FixedHeaders({"Authorization": "Bearer good"}))

    for body in ({"id": 1}, {"id": 2}, {"id": 1}):
        answer = await rest.send(RestRequest("GET", "none", "Get", json=body, allowed=(404,)))
        assert answer.status == 404

    assert [asked.json() for asked in shelf.calls] == [{"id": 1}, {"id": 2}]
    await rest.close()


async def test_a_status_in_the_body_counts_like_one_of_the_backend(shelf: Shelf, store: Keep) -> None:
    settings = RestSettings("the shelf", URL(shelf.url), status_of=lambda answer: int(answer.body or b"200"))
    rest = Rest(store, settings, FixedHeaders({"Authorization": "Bearer good"}))
    shelf.script("GET *", StandinResponse(400, b"401"))

    reasons = []
    for _ in range(2):
        with pytest.raises(ProviderError) as failed:
            await rest.get("values/a", call="Get")
        reasons.append(failed.value.reason)

    assert reasons == [ErrorReason.CREDENTIALS_REJECTED] * 2
    assert len(shelf.calls) == 1
    await rest.close()


async def test_credentials_may_be_members_of_the_body_and_a_post_may_only_read(store: Keep) -> None:
    @dataclass(slots=True)
    class Desk(StandIn):
        """Accepts a token in bodies; nothing exists."""

        async def respond(self, asked: StandinRequest) -> StandinResponse:
            return StandinResponse(404 if asked.json().get("token") == "good" else 401)

    with Desk.started() as desk:
        settings = RestSettings("the desk", URL(desk.url), credentials_in_body=True)
        rest = Rest(store, settings, FixedHeaders({"token": "good"}))
        read = RestRequest("POST", "describe", "Describe", json={"name": "a"}, allowed=(404,), reads=True)
        write = RestRequest("POST", "create", "Create", json={"name": "a"}, allowed=(404,))

        for request in (read, read, write, read):
            assert (await rest.send(request)).status == 404

        await rest.close()
    assert [call.path for call in desk.calls] == ["/describe", "/create", "/describe"]
    assert desk.calls[0].json() == {"name": "a", "token": "good"}
    assert "token" not in desk.calls[0].headers


async def test_a_session_closes_what_it_opened_the_last_first(store: Keep) -> None:
    closed: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    store.close_later(Part("connection"))
    store.close_later(Part("login"))
    await store.close()

    assert closed == ["login", "connection"]
