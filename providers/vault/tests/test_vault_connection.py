"""The way to the server: TLS, namespaces, headers, consistency, and servers that do not behave."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_vault.api import newer
from eso_provider_vault.store import VaultStore
from eso_provider_vault.testing.events import RecordedRequest, ReplyServer, StubResponse
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, GetResult, PushBatch, PushItem, PushOutcome, RemoteRef
from kubebase.clock import SystemClock
from kuberun.testing.authority import Authority

StoreMaker = Callable[..., Context]


def problem(result: GetResult) -> ProviderError:
    assert isinstance(result.outcome, ProviderError), "it was found"
    return result.outcome


def context_of(url: str, credentials: dict[str, str | bytes] | None = None, **spec: Any) -> Context:
    auth = {"tokenSecretRef": {"name": "vault", "key": "token"}}
    given: Any = {"/auth/tokenSecretRef": "s.CANARYtoken"} | (credentials or {})
    return call_context(VaultStore, {"server": url, "path": "kv", "auth": auth} | spec, given)


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_the_bundle_of_the_store_is_trusted_and_no_other(tls_bao: OpenBao, provider: InMemory) -> None:
    tls_bao.enable("kv")
    tls_bao.put("kv", "app", {"user": "anna"})
    token: Any = {"/auth/tokenSecretRef": tls_bao.root_token}
    own = base64.b64encode(tls_bao.ca).decode()
    other = base64.b64encode(Authority(SystemClock().now()).pem).decode()

    good = await provider.get_one(context_of(tls_bao.url, token, caBundle=own), "app", property="user")
    twice = base64.b64encode(own.encode()).decode()
    encoded_twice = await provider.get_one(context_of(tls_bao.url, token, caBundle=twice), "app", property="user")
    wrong = problem(await provider.get_one(context_of(tls_bao.url, token, caBundle=other), "app"))
    system = problem(await provider.get_one(context_of(tls_bao.url, token), "app"))

    assert good.outcome == encoded_twice.outcome == SecretBytes(b"anna")
    for error in (wrong, system):
        assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
        assert "caBundle" in error.message


async def test_a_bundle_may_come_from_a_config_map(tls_bao: OpenBao, provider: InMemory) -> None:
    given: Any = {"/auth/tokenSecretRef": tls_bao.root_token, "/caProvider": tls_bao.ca}
    reference = {"type": "ConfigMap", "name": "ca", "key": "ca.crt"}

    result = await provider.get_one(context_of(tls_bao.url, given, caProvider=reference, path="kv"), "nothing")

    assert problem(result).reason is not ErrorReason.BACKEND_UNAVAILABLE


async def test_half_a_client_certificate_is_refused(tls_bao: OpenBao, provider: InMemory) -> None:
    tls = {"certSecretRef": {"name": "client", "key": "tls.crt"}}

    validation = await provider.validate(context_of(tls_bao.url, {"/tls/certSecretRef": b"x"}, tls=tls))

    assert validation.error is not None
    assert "keySecretRef" in validation.error.message


# --- namespaces and headers -------------------------------------------------------------------------------------------


async def test_a_store_reads_its_own_namespace(bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker) -> None:
    for name in (f"{mount}-one", f"{mount}-two"):
        bao.must("POST", f"sys/namespaces/{name}")
        bao.enable("kv", namespace=name)
        bao.put("kv", "app", {"user": name}, namespace=name)

    one = await provider.get_one(store("kv", namespace=f"{mount}-one"), "app", property="user")
    two = await provider.get_one(store("kv", namespace=f"{mount}-two"), "app", property="user")

    assert one.outcome == SecretBytes(f"{mount}-one".encode())
    assert two.outcome == SecretBytes(f"{mount}-two".encode())


async def test_requests_carry_the_headers_of_the_store(provider: InMemory) -> None:
    def responder(_request: RecordedRequest) -> StubResponse:
        return StubResponse(200, b'{"data":{"data":{"a":"b"},"metadata":{"version":1}}}')

    async with ReplyServer.started(responder) as server:
        spec: Any = {"namespace": "team", "headers": {"X-Proxy": "yes"}}
        result = await provider.get_one(context_of(server.url, **spec), "app", property="a")

    assert result.outcome == SecretBytes(b"b")
    (sent,) = server.requests
    assert (sent.method, sent.target) == ("GET", "/v1/kv/data/app")
    expected = {
        "x-vault-request": "true",
        "x-vault-token": "s.CANARYtoken",
        "x-vault-namespace": "team",
        "x-proxy": "yes",
    }
    assert expected.items() <= sent.headers.items()
    assert "x-vault-inconsistent" not in sent.headers


async def test_the_token_is_looked_up_in_the_namespace_of_the_login(provider: InMemory) -> None:
    def responder(_request: RecordedRequest) -> StubResponse:
        return StubResponse(403, b'{"errors":["permission denied"]}')

    async with ReplyServer.started(responder) as server:
        auth = {"tokenSecretRef": {"name": "vault", "key": "token"}, "namespace": "logins"}
        error = problem(await provider.get_one(context_of(server.url, namespace="team", auth=auth), "app"))

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert [sent.headers["x-vault-namespace"] for sent in server.requests] == ["team", "logins"]


async def test_reads_ask_for_the_state_of_our_own_writes(provider: InMemory) -> None:
    def responder(sent: RecordedRequest) -> StubResponse:
        if sent.method == "POST":
            return StubResponse(200, b'{"data":{"version":1}}', {"X-Vault-Index": _index(7)})
        if "ui/mounts" in sent.target:
            return StubResponse(200, b'{"data":{"type":"kv","path":"kv/","options":{"version":"2"}}}')
        return StubResponse(404, b'{"errors":[]}')

    async with ReplyServer.started(responder) as server:
        context = context_of(server.url, readYourWrites=True, forwardInconsistent=True)
        item = PushItem("one", RemoteRef("app", property="a"), SecretBytes(b"x"))
        await provider.push(context, PushBatch((item,), idempotency_key="once"))
        await provider.get_one(context, "app")

    before = next(sent for sent in server.requests if sent.method == "GET")
    after = server.requests[-1]
    assert "x-vault-index" not in before.headers
    assert after.headers["x-vault-index"] == _index(7)
    assert after.headers["x-vault-inconsistent"] == "forward-active-node"


@pytest.mark.parametrize(
    ("known", "received", "expected"),
    [
        pytest.param("", 3, 3, id="the first"),
        pytest.param(3, 5, 5, id="a later one"),
        pytest.param(5, 3, 5, id="an earlier one that arrives late"),
        pytest.param(5, "", 5, id="none"),
        pytest.param("rubbish", 3, 3, id="what cannot be read gives way"),
    ],
)
def test_the_later_index_is_kept(known: int | str, received: int | str, expected: int) -> None:
    assert newer(_index(known), _index(received)) == _index(expected)


def _index(position: int | str) -> str:
    if isinstance(position, str):
        return position
    return base64.b64encode(f"v1:cluster:{position}:0:hmac".encode()).decode()


# --- servers that do not behave ---------------------------------------------------------------------------------------


PAGE = b"<html><body>404 Not Found CANARY</body></html>"


@pytest.mark.parametrize(
    ("response", "reason", "text"),
    [
        pytest.param(
            StubResponse(404, PAGE, {"Content-Type": "text/html"}), "BACKEND_ERROR", "proxy", id="a proxy's 404"
        ),
        pytest.param(StubResponse(404, b""), "BACKEND_ERROR", "proxy", id="a 404 without a body"),
        pytest.param(
            StubResponse(404, b'{"message":"CANARY"}'), "CONFIG_INVALID", "kv/data/app", id="a 404 of another server"
        ),
        pytest.param(StubResponse(404, b'["CANARY"]'), "BACKEND_ERROR", "proxy", id="a 404 that is a list"),
        pytest.param(StubResponse(200, PAGE), "BACKEND_ERROR", "proxy", id="a page where a secret should be"),
        pytest.param(StubResponse(200, b'{"data":null}'), "BACKEND_ERROR", "proxy", id="no data"),
        pytest.param(
            StubResponse(302, b"", {"Location": "http://10.0.0.9/"}), "BACKEND_UNAVAILABLE", "active", id="redirect"
        ),
        pytest.param(StubResponse(307, b""), "BACKEND_UNAVAILABLE", "active", id="a redirect to nowhere"),
        pytest.param(StubResponse(400, b'{"errors":["CANARY"]}'), "BACKEND_ERROR", "HTTP 400", id="a bad request"),
        pytest.param(
            StubResponse(400, b'{"errors":["missing client token"]}'), "CREDENTIALS_REJECTED", "token", id="no token"
        ),
        pytest.param(
            StubResponse(400, b'{"errors":["Upgrading from"]}'), "BACKEND_UNAVAILABLE", "upgraded", id="upgrading"
        ),
        pytest.param(
            StubResponse(403, b'{"errors":["2 errors: invalid token"]}'), "CREDENTIALS_REJECTED", "token", id="dead"
        ),
        pytest.param(StubResponse(403, PAGE), "CREDENTIALS_REJECTED", "token", id="a 403 that tells nothing"),
        pytest.param(
            StubResponse(412, b'{"errors":["index"]}'), "BACKEND_UNAVAILABLE", "caught up", id="a lagging replica"
        ),
        pytest.param(StubResponse(413, b""), "PAYLOAD_TOO_LARGE", "larger", id="too large"),
        pytest.param(StubResponse(429, b'{"errors":["quota"]}'), "RATE_LIMITED", "quota", id="a quota"),
        pytest.param(StubResponse(472, b'{"errors":[]}'), "BACKEND_UNAVAILABLE", "standby", id="a recovery standby"),
        pytest.param(StubResponse(473, b'{"errors":[]}'), "BACKEND_UNAVAILABLE", "standby", id="a performance standby"),
        pytest.param(
            StubResponse(500, b'{"errors":["CANARY"]}'), "BACKEND_UNAVAILABLE", "HTTP 500", id="an internal error"
        ),
        pytest.param(StubResponse(502, PAGE), "BACKEND_UNAVAILABLE", "HTTP 502", id="a gateway"),
        pytest.param(
            StubResponse(503, b'{"errors":["Vault is sealed"]}'), "BACKEND_UNAVAILABLE", "sealed", id="sealed"
        ),
    ],
)
async def test_odd_answers_are_errors_that_quote_nothing(
    provider: InMemory, response: StubResponse, reason: str, text: str
) -> None:
    def responder(sent: RecordedRequest) -> StubResponse:
        if "ui/mounts" in sent.target:
            return StubResponse(200, b'{"data":{"type":"kv","path":"kv/","options":{"version":"2"}}}')
        return response

    async with ReplyServer.started(responder) as server:
        error = problem(await provider.get_one(context_of(server.url), "app"))

    assert error.reason is ErrorReason(reason), error.message
    assert text in error.message
    assert "CANARY" not in error.message
    assert not error.is_not_found


# --- standby nodes ----------------------------------------------------------------------------------------------------


async def test_a_redirect_of_a_standby_node_is_followed_with_method_body_and_token(
    bao: OpenBao, mount: str, provider: InMemory
) -> None:
    def standby(sent: RecordedRequest) -> StubResponse:
        return StubResponse(307, b"", {"Location": f"{bao.url}{sent.target}"})

    async with ReplyServer.started(standby) as server:
        context = context_of(server.url, {"/auth/tokenSecretRef": bao.root_token}, path=mount)
        item = PushItem("one", RemoteRef("app", property="a"), SecretBytes(b"x"))
        (pushed,) = await provider.push(context, PushBatch((item,), idempotency_key="once"))
        result = await provider.get_one(context, "app", property="a")

    assert pushed.outcome is PushOutcome.CREATED
    assert result.outcome == SecretBytes(b"x")
    assert {sent.method for sent in server.requests} >= {"GET", "POST"}


async def test_a_login_at_a_standby_node_is_followed_too(bao: OpenBao, mount: str, provider: InMemory) -> None:
    bao.enable_auth(f"{mount}-users", "userpass")
    bao.must("POST", f"auth/{mount}-users/users/anna", {"password": "secret", "token_policies": "root-like"})
    bao.policy("root-like", f'path "{mount}/*" {{ capabilities = ["read"] }}')
    bao.put(mount, "app", {"a": "x"})
    auth = {"userPass": {"path": f"{mount}-users", "username": "anna", "secretRef": {"name": "vault", "key": "pw"}}}

    async with ReplyServer.started(lambda sent: StubResponse(307, b"", {"Location": bao.url + sent.target})) as server:
        spec = {"server": server.url, "path": mount, "auth": auth}
        context = call_context(VaultStore, spec, {"/auth/userPass/secretRef": "secret"})
        result = await provider.get_one(context, "app", property="a")

    assert result.outcome == SecretBytes(b"x")


async def test_a_loop_or_a_second_redirect_is_an_error(provider: InMemory) -> None:
    def loops(sent: RecordedRequest) -> StubResponse:
        return StubResponse(307, b"", {"Location": sent.target})

    async with ReplyServer.started(loops) as last, ReplyServer.started(loops) as middle:
        middle.responder = lambda sent: StubResponse(307, b"", {"Location": last.url + sent.target})
        loop = problem(await provider.get_one(context_of(last.url), "app"))
        twice = problem(await provider.get_one(context_of(middle.url), "app"))

    for error in (loop, twice):
        assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
        assert "redirects again" in error.message
        assert "set server" in error.message
    assert len(last.requests) == 3
    assert len(middle.requests) == 1


async def test_a_redirect_from_https_to_http_is_not_followed(provider: InMemory, tmp_path: Path) -> None:
    authority = Authority(SystemClock().now())
    serving = authority.issue("localhost", address="127.0.0.1")
    tls = authority.server_context(tmp_path, serving, client_authority=False)
    bundle = base64.b64encode(authority.pem).decode()

    async with (
        ReplyServer.started(lambda _: StubResponse()) as plain,
        ReplyServer.started(lambda _: StubResponse(307, b"", {"Location": plain.url}), tls=tls) as encrypted,
    ):
        error = problem(await provider.get_one(context_of(encrypted.url, caBundle=bundle), "app"))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "not followed" in error.message
    assert len(encrypted.requests) == 1
    assert plain.requests == []


async def test_a_redirect_obeys_the_rule_for_addresses(provider: InMemory) -> None:
    metadata_service = {"Location": "http://169.254.169.254/latest/meta-data"}
    async with ReplyServer.started(lambda _: StubResponse(307, b"", metadata_service)) as server:
        error = problem(await provider.get_one(context_of(server.url), "app"))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "stores may not reach" in error.message
    assert "http://169.254.169.254" in error.message


# --- more servers that do not behave ----------------------------------------------------------------------------------


async def test_not_found_needs_a_server_that_confirms_the_engine(provider: InMemory) -> None:
    def responder(_request: RecordedRequest) -> StubResponse:
        return StubResponse(404, b'{"errors":[]}')

    async with ReplyServer.started(responder) as server:
        error = problem(await provider.get_one(context_of(server.url), "app"))

    assert not error.is_not_found


async def test_retry_after_is_passed_on(provider: InMemory) -> None:
    async with ReplyServer.started(lambda _: StubResponse(429, b"{}", {"Retry-After": "7"})) as server:
        error = problem(await provider.get_one(context_of(server.url), "app"))

    assert error.retry_after == 7.0
    assert "(HTTP 429)" in error.message


async def test_a_rate_limit_quota_of_the_server_is_rate_limited(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"a": "b"})
    bao.must("POST", f"sys/quotas/rate-limit/{mount}", {"rate": 1, "interval": "60s", "path": mount})

    outcomes = [(await provider.get_one(store(mount), "app")).outcome for _ in range(3)]
    bao.must("DELETE", f"sys/quotas/rate-limit/{mount}")

    limited = [outcome for outcome in outcomes if isinstance(outcome, ProviderError)]
    assert {error.reason for error in limited} == {ErrorReason.RATE_LIMITED}


async def test_a_sealed_server_is_unavailable_and_heals(
    tmp_path_factory: pytest.TempPathFactory, provider: InMemory
) -> None:
    with OpenBao.started(tmp_path_factory.mktemp("sealed")) as bao:
        bao.enable("kv")
        bao.put("kv", "app", {"user": "anna"})
        context = context_of(bao.url, {"/auth/tokenSecretRef": bao.root_token})
        bao.seal()
        sealed = problem(await provider.get_one(context, "app"))
        with pytest.raises(ProviderError) as unsure:
            await provider.validate(context)
        bao.unseal()
        healed = await provider.get_one(context, "app", property="user")

    assert sealed.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "sealed" in sealed.message
    assert unsure.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert healed.outcome == SecretBytes(b"anna")


async def test_a_server_that_is_not_there_is_named(provider: InMemory) -> None:
    error = problem(await provider.get_one(context_of("http://127.0.0.1:9"), "app"))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "127.0.0.1:9" in error.message


async def test_a_loopback_server_needs_the_administrators_leave(bao: OpenBao) -> None:
    from eso_provider_vault.provider import PROVIDER

    async with InMemory(PROVIDER) as provider:
        error = problem(await provider.get_one(context_of(bao.url), "app"))

    assert error.reason is ErrorReason.CONFIG_INVALID
    assert "--allow-address" in error.message


async def test_user_and_password_of_an_address_do_not_show(provider: InMemory) -> None:
    error = problem(await provider.get_one(context_of("http://CANARY:CANARY@127.0.0.1:9"), "app"))

    assert "CANARY" not in error.message


async def test_a_hanging_server_does_not_delay_others(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})
    async with ReplyServer.started(lambda _: None) as server:
        hanging = [asyncio.ensure_future(provider.get_one(context_of(server.url), f"k{n}")) for n in range(40)]
        result = await provider.get_one(store(mount), "app", property="user")
        still_waiting = not any(each.done() for each in hanging)
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    assert result.outcome == SecretBytes(b"anna")
    assert still_waiting


async def test_an_answer_without_end_is_cut_off(provider: InMemory) -> None:
    huge = b'{"data":"' + b"x" * (33 * 1024 * 1024) + b'"}'
    async with ReplyServer.started(lambda _: StubResponse(200, huge)) as server:
        error = problem(await provider.get_one(context_of(server.url), "app"))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert "larger than" in error.message


async def test_calls_are_counted_under_the_names_that_dashboards_know(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.put(mount, "app", {"user": "anna"})

    await provider.get_one(store(mount), "app")
    await provider.get_one(store(mount), "absent")
    await provider.get_one(store(mount, token=bao.token("default")), "app")

    assert (
        'call="ReadSecretData",provider="HashiCorp/Vault",status="error"} 1.0' in provider.metrics.exposition().decode()
    )
    series = (
        'externalsecret_provider_api_calls_count{call="ReadSecretData",provider="HashiCorp/Vault",status="success"}'
    )
    assert series in provider.metrics.exposition().decode()
