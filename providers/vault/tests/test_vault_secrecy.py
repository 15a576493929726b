"""Values and tokens appear in answers only, and no identity sees the values of another."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import pytest

from eso_api.values import SecretBytes
from eso_provider_vault.testing.events import RecordedRequest, ReplyServer, StubResponse
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, FindQuery, PushBatch, PushItem, RemoteRef, Shape

StoreMaker = Callable[..., Context]
PLANTED = "CANARY-7f3a"


def _always(response: StubResponse, _seen: RecordedRequest) -> StubResponse:
    return response


async def test_identities_that_share_a_store_never_see_each_others_values(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    contexts = {}
    for name in ("one", "two"):
        bao.put(mount, name, {"user": name})
        bao.policy(f"{mount}-{name}", f'path "{mount}/data/{name}" {{ capabilities = ["read"] }}')
        contexts[name] = store(mount, token=bao.token(f"{mount}-{name}"))

    results = await asyncio.gather(
        *(
            provider.get_one(contexts[who], what, property="user")
            for who in contexts
            for what in contexts
            for _ in "123"
        )
    )

    outcomes = iter(results)
    for who in contexts:
        for what in contexts:
            for _ in "123":
                outcome = next(outcomes).outcome
                if who == what:
                    assert outcome == SecretBytes(who.encode())
                else:
                    assert isinstance(outcome, ProviderError)
                    assert outcome.reason is ErrorReason.PERMISSION_DENIED


async def test_absent_keys_of_a_namespace_are_not_found(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("POST", f"sys/namespaces/{mount}-ns")
    bao.enable("kv", namespace=f"{mount}-ns")

    outcome = (await provider.get_one(store("kv", namespace=f"{mount}-ns"), "absent")).outcome

    assert isinstance(outcome, ProviderError)
    assert outcome.reason is ErrorReason.SECRET_NOT_FOUND


async def test_no_value_and_no_token_gets_into_logs_metrics_or_errors(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker, *, capfd: pytest.CaptureFixture[str]
) -> None:
    bao.put(mount, "app", {"password": PLANTED})
    texts: list[str] = []

    async def ask(context: Context) -> None:
        item = PushItem("one", RemoteRef("app", property="password"), SecretBytes(f"{PLANTED}-pushed".encode()))
        whole = PushItem("two", RemoteRef("other"), SecretBytes(f"{PLANTED} is no object".encode()))
        got = [await provider.get_one(context, "app", property=path) for path in ("password.x", "none", "password")]
        got.append(await provider.get_one(context, "app", shape=Shape.MAP, property="password"))
        texts.extend(str(one.outcome) for one in got if isinstance(one.outcome, ProviderError))
        pushed = await provider.push(context, PushBatch((item, whole), idempotency_key="once"))
        texts.extend(str(one.outcome) for one in pushed)
        for call in (provider.find(context, FindQuery(name_regexp=".")), provider.validate(context)):
            try:
                texts.append(str(await call))
            except ProviderError as failed:
                texts.append(failed.message)

    await ask(store(mount))
    await ask(store(mount, token=f"s.{PLANTED}"))
    echo = f'{{"errors":["{PLANTED}"],"data":{{"{PLANTED}":1}}}}'.encode()
    for status in (200, 400, 403, 404, 429, 500):
        response = StubResponse(status, echo)
        async with ReplyServer.started(functools.partial(_always, response)) as server:
            await ask(store(mount, token=f"s.{PLANTED}", server=server.url))

    assert len(texts) > 40
    shown = "\n".join([*texts, *capfd.readouterr(), provider.metrics.exposition().decode()])
    assert PLANTED not in shown
    assert bao.root_token not in shown
