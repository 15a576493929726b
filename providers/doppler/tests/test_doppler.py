"""What the Doppler provider reads, finds, pushes and deletes, and what it asks Doppler for."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_doppler.store import DopplerStore
from eso_provider_doppler.testing.server import TOKEN, DopplerServer
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.standin import StandinResponse
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GetItem,
    PushBatch,
    PushItem,
    PushOutcome,
    RemoteRef,
    Shape,
    SourceSecret,
    Token,
    ValidationState,
)
from kubebase.testing.clock import VirtualClock

CANARY = "CANARY-44b1"
DOWNLOADS = "GET /v3/configs/config/secrets/download"
UPDATES = "POST /v3/configs/config/secrets"
SHOP = ("shop", "prd")


def opened(token: str = TOKEN, **spec: Any) -> Context:
    auth = {"secretRef": {"dopplerToken": {"name": "doppler", "key": "token"}}}
    whole = {"project": "shop", "config": "prd", "auth": auth, **spec}
    return call_context(DopplerStore, whole, {"/auth/secretRef/dopplerToken": token})


async def outcome(client: InMemory, context: Context, key: str, **ref: Any) -> Any:
    """Return the value of a key, or the error of it or of the whole call."""
    try:
        return (await client.get_one(context, key, **ref)).outcome
    except ProviderError as failed:
        return failed


def reason(found: object) -> ErrorReason:
    assert isinstance(found, ProviderError)
    assert CANARY not in found.message
    assert TOKEN not in found.message
    return found.reason


async def pushed(client: InMemory, key: str, payload: SecretBytes | Mapping[str, SecretBytes], prop: str = "") -> Any:
    item = PushItem("one", RemoteRef(key, property=prop), payload)
    (result,) = await client.push(opened(), PushBatch((item,), SourceSecret()))
    return result.outcome


async def deleted(client: InMemory, key: str, prop: str = "") -> Any:
    (result,) = await client.delete(opened(), DeleteBatch((DeleteItem("one", RemoteRef(key, property=prop)),)))
    return result.existed


# --- reading ---------------------------------------------------------------------------------------------------------


async def test_one_download_answers_every_key_of_a_config(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs[SHOP] = {f"KEY_{number}": str(number) for number in range(50)}
    items = [GetItem(name, RemoteRef(name)) for name in doppler.configs[SHOP]]

    results = await client.get(opened(), items)

    assert [result.outcome for result in results] == [SecretBytes(str(number).encode()) for number in range(50)]
    assert len(doppler.requests(DOWNLOADS)) == 1


async def test_an_unchanged_config_is_not_sent_again(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs[SHOP] = {"A": "1"}

    first = await outcome(client, opened(), "A")
    second = await outcome(client, opened(), "A")

    assert first == second == SecretBytes(b"1")
    assert "if-none-match" in doppler.requests(DOWNLOADS)[1].headers


async def test_the_token_is_the_user_of_basic_authorization(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs[SHOP] = {"A": "1"}

    await outcome(client, opened(), "A")

    (request,) = doppler.requests(DOWNLOADS)
    assert request.headers["authorization"] == "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode()
    assert request.query == {"project": "shop", "config": "prd", "format": "json"}


async def test_a_token_of_one_config_needs_no_project(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs["shop", "dev"] = {"A": "of dev"}
    doppler.tokens["dp.st.dev"] = ("shop", "dev")

    found = await outcome(client, opened("dp.st.dev", project="", config=""), "A")

    assert found == SecretBytes(b"of dev")


async def test_a_property_of_a_json_value_is_read(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs[SHOP] = {"LOGIN": '{"user":"anna","age":7}'}

    assert await outcome(client, opened(), "LOGIN", property="age") == SecretBytes(b"7")
    absent = await outcome(client, opened(), "LOGIN", property="none")
    assert reason(absent) is ErrorReason.PROPERTY_NOT_FOUND
    members = await outcome(client, opened(), "LOGIN", shape=Shape.MAP)
    assert members == {"user": SecretBytes(b"anna"), "age": SecretBytes(b"7")}


async def test_a_missing_key_is_not_found_and_costs_one_download_a_minute(
    client: InMemory, doppler: DopplerServer, clock: VirtualClock
) -> None:
    doppler.configs[SHOP] = {"DB_PASSWORD": CANARY}

    reasons = [reason(await outcome(client, opened(), "DB_PASSWORT")) for _ in range(5)]
    before = len(doppler.requests(DOWNLOADS))
    doppler.configs[SHOP]["DB_PASSWORT"] = "typed that way"
    await clock.advance(61)

    assert reasons == [ErrorReason.SECRET_NOT_FOUND] * 5
    assert before == 1
    assert await outcome(client, opened(), "DB_PASSWORT") == SecretBytes(b"typed that way")


async def test_a_missing_config_is_an_error_and_not_a_missing_key(client: InMemory, doppler: DopplerServer) -> None:
    del doppler.configs[SHOP]

    found = await outcome(client, opened(), "A")

    assert reason(found) is ErrorReason.BACKEND_ERROR
    assert 'config "prd" of project "shop" does not exist' in found.message


async def test_a_bad_token_costs_one_call_a_minute(client: InMemory, doppler: DopplerServer) -> None:
    bad = opened("dp.st.revoked")

    reasons = [reason(await outcome(client, bad, "A")) for _ in range(5)]

    assert reasons == [ErrorReason.CREDENTIALS_REJECTED] * 5
    assert len(doppler.calls) == 1


async def test_throttling_pauses_every_store_of_the_token_as_long_as_doppler_says(
    client: InMemory, doppler: DopplerServer
) -> None:
    doppler.script(DOWNLOADS, StandinResponse(429, {"messages": [CANARY]}, {"Retry-After": "40"}))

    first = await outcome(client, opened(), "A")
    second = await outcome(client, opened(config="dev"), "A")

    assert reason(first) is reason(second) is ErrorReason.RATE_LIMITED
    assert second.retry_after == pytest.approx(40)
    assert len(doppler.calls) == 1


async def test_two_namespaces_with_different_tokens_read_their_own_values(
    client: InMemory, doppler: DopplerServer
) -> None:
    doppler.configs = {("shop", "prd"): {"A": "of shop"}, ("bank", "prd"): {"A": "of bank"}}
    doppler.tokens = {"dp.st.shop": ("shop", "prd"), "dp.st.bank": ("bank", "prd")}

    found = [
        await outcome(client, opened(token, project="", config=""), "A")
        for token in ("dp.st.shop", "dp.st.bank", "dp.st.shop")
    ]

    assert found == [SecretBytes(b"of shop"), SecretBytes(b"of bank"), SecretBytes(b"of shop")]


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        pytest.param(FindQuery(name_regexp="^DB_"), {"DB_USER", "DB_PASSWORD"}, id="by name"),
        pytest.param(FindQuery(path="DB_P"), {"DB_PASSWORD"}, id="by prefix"),
        pytest.param(FindQuery(), {"DB_USER", "DB_PASSWORD", "URL"}, id="everything"),
        pytest.param(FindQuery(name_regexp="^NONE"), set(), id="nothing"),
    ],
)
async def test_a_find_costs_one_download(
    client: InMemory, doppler: DopplerServer, query: FindQuery, keys: set[str]
) -> None:
    doppler.configs[SHOP] = {"DB_USER": "anna", "DB_PASSWORD": "x", "URL": "y"}

    found = await client.find(opened(), query)

    assert {one.key for one in found} == keys
    assert len(doppler.calls) == 1


@pytest.mark.parametrize(
    ("transformer", "key"),
    [("upper-camel", "DbUser"), ("camel", "dbUser"), ("lower-snake", "db_user"), ("tf-var", "TF_VAR_db_user"),
     ("lower-kebab", "db-user"), ("dotnet-env", "dbuser")],
)  # fmt: skip
async def test_a_find_spells_names_as_the_transformer_says(
    client: InMemory, doppler: DopplerServer, transformer: str, key: str
) -> None:
    doppler.configs[SHOP] = {"DB_USER": "anna"}

    (found,) = await client.find(opened(nameTransformer=transformer), FindQuery())

    assert (found.key, found.value) == (key, SecretBytes(b"anna"))
    assert doppler.calls[0].query["name_transformer"] == transformer


@pytest.mark.parametrize(("form", "text"), [("env", b'A="1"\n'), ("docker", b"A=1\n"), ("yaml", b'A: "1"\n')])
async def test_a_find_with_a_format_returns_one_file(
    client: InMemory, doppler: DopplerServer, form: str, text: bytes
) -> None:
    doppler.configs[SHOP] = {"A": "1"}

    (found,) = await client.find(opened(format=form), FindQuery())

    assert (found.key, found.value) == ("DOPPLER_SECRETS_FILE", SecretBytes(text))


# --- writing ---------------------------------------------------------------------------------------------------------


async def test_a_push_creates_updates_and_leaves_an_equal_value_alone(client: InMemory, doppler: DopplerServer) -> None:
    outcomes = [await pushed(client, "A", SecretBytes(text)) for text in (b"1", b"1", b"2")]

    assert outcomes == [PushOutcome.CREATED, PushOutcome.UNCHANGED, PushOutcome.UPDATED]
    assert doppler.configs[SHOP] == {"A": "2"}
    assert len(doppler.requests(UPDATES)) == 2


async def test_a_whole_secret_is_pushed_as_json(client: InMemory, doppler: DopplerServer) -> None:
    await pushed(client, "A", {"b": SecretBytes(b"2"), "a": SecretBytes(b"<1>")})

    assert doppler.configs[SHOP] == {"A": '{"a":"<1>","b":"2"}'}


async def test_a_property_is_pushed_into_the_value_and_removed_from_it(
    client: InMemory, doppler: DopplerServer
) -> None:
    doppler.configs[SHOP] = {"A": '{"kept":true}'}

    await pushed(client, "A", SecretBytes(b"2"), "b.c")
    with_property = json.loads(doppler.configs[SHOP]["A"])
    existed = await deleted(client, "A", "b")

    assert with_property == {"kept": True, "b": {"c": "2"}}
    assert existed is True
    assert json.loads(doppler.configs[SHOP]["A"]) == {"kept": True}


async def test_a_binary_value_is_refused_without_quoting_it(client: InMemory, doppler: DopplerServer) -> None:
    refused = await pushed(client, "A", SecretBytes(b"\xff" + CANARY.encode()))

    assert reason(refused) is ErrorReason.INVALID_REQUEST
    assert doppler.requests(UPDATES) == []


async def test_a_key_is_deleted_once(client: InMemory, doppler: DopplerServer) -> None:
    doppler.configs[SHOP] = {"A": "1", "B": "2"}

    assert [await deleted(client, "A"), await deleted(client, "A")] == [True, False]
    assert doppler.configs[SHOP] == {"B": "2"}


async def test_a_pushed_key_is_found_although_it_was_missing_before(client: InMemory, doppler: DopplerServer) -> None:
    missing = await outcome(client, opened(), "A")
    await pushed(client, "A", SecretBytes(b"1"))

    assert reason(missing) is ErrorReason.SECRET_NOT_FOUND
    assert await outcome(client, opened(), "A") == SecretBytes(b"1")
    assert doppler.configs[SHOP] == {"A": "1"}


# --- credentials -----------------------------------------------------------------------------------------------------


def oidc(identity: str = "shop-reader", text: bytes = b"jwt-of-reader") -> Context:
    spec = {
        "project": "shop",
        "config": "prd",
        "auth": {"oidcConfig": {"identity": identity, "serviceAccountRef": {"name": "reader"}}},
    }
    token = Token(SecretBytes(text), namespace="team", name="reader", uid="1", audiences=("https://api.doppler.com",))
    return call_context(DopplerStore, spec, {"/auth/oidcConfig/serviceAccountRef": token})


async def test_a_service_account_logs_in_once_for_all_reads(client: InMemory, doppler: DopplerServer) -> None:
    doppler.identities["shop-reader"] = "jwt-of-reader"
    doppler.configs[SHOP] = {"A": "1"}

    found = [await outcome(client, oidc(), "A") for _ in range(5)]

    (login,) = doppler.requests("POST /v3/auth/oidc")
    assert found == [SecretBytes(b"1")] * 5
    assert login.json() == {"identity": "shop-reader", "token": "jwt-of-reader"}


async def test_a_refused_login_costs_one_call_a_minute(client: InMemory, doppler: DopplerServer) -> None:
    reasons = [reason(await outcome(client, oidc("unknown"), "A")) for _ in range(5)]

    assert reasons == [ErrorReason.CREDENTIALS_REJECTED] * 5
    assert len(doppler.calls) == 1


@pytest.mark.parametrize(
    "auth", [pytest.param({}, id="none"), pytest.param({"secretRef": {"dopplerToken": {"name": "d"}}, "oidcConfig":
             {"identity": "i", "serviceAccountRef": {"name": "r"}}}, id="both")],
)  # fmt: skip
async def test_credentials_must_have_exactly_one_form(client: InMemory, auth: dict[str, Any]) -> None:
    found = await client.validate(call_context(DopplerStore, {"auth": auth}))

    assert found.error is not None
    assert "exactly one of secretRef and oidcConfig" in found.error.message


async def test_a_cluster_store_must_name_the_namespace_of_its_token(client: InMemory, doppler: DopplerServer) -> None:
    del doppler
    context = opened()
    holder, store = (replace(ref, namespace="") for ref in (context.config.ref, context.store))
    spec = replace(context, config=replace(context.config, ref=holder), store=store)

    found = await outcome(client, spec, "A")

    assert reason(found) is ErrorReason.CONFIG_INVALID
    assert "/auth/secretRef/dopplerToken/namespace" in found.message


async def test_validation_asks_for_the_projects(client: InMemory, doppler: DopplerServer) -> None:
    good = await client.validate(opened())
    bad = await client.validate(opened("dp.st.revoked"))

    assert (good.state, bad.state) == (ValidationState.READY, ValidationState.INVALID)
    assert doppler.calls[0].line == "GET /v3/projects"


async def test_switching_tls_verification_off_is_refused(
    client: InMemory, doppler: DopplerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOPPLER_VERIFY_TLS", "false")

    found = await outcome(client, opened(), "A")

    assert reason(found) is ErrorReason.CONFIG_INVALID
    assert doppler.calls == []
