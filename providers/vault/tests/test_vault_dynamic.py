"""VaultDynamicSecret on a real server: values, leases, tokens, certificates and their ends."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from eso_api.generators.vault import VaultDynamicSecretSpec
from eso_api.values import SecretBytes
from eso_provider_vault.dynamic import VaultDynamicSecretGenerator
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import Sent, make
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest
from kubebase.clock import SystemClock

_NUMBERS = itertools.count(1)
CLEANING = 'path "sys/leases/revoke" { capabilities = ["update"] }\n'


@asynccontextmanager
async def generator(spec: Mapping[str, Any], sent: Sent) -> AsyncIterator[VaultDynamicSecretGenerator]:
    session = make(VaultDynamicSecretGenerator, VaultDynamicSecretSpec, spec, sent)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


def spec_of(bao: OpenBao, path: str, **more: Any) -> dict[str, Any]:
    auth = {"tokenSecretRef": {"name": "credentials", "key": "token"}}
    return {"path": path, "provider": {"server": bao.url, "auth": auth}, **more}


def static(token: str) -> dict[str, str]:
    return {"/provider/auth/tokenSecretRef": token}


def texts(made: Generated) -> dict[str, str]:
    return {name: value.reveal().decode() for name, value in made.data.items()}


def state_of(made: Generated) -> Any:
    assert made.state is not None
    return json.loads(made.state.reveal())


def seconds_left(made: Generated) -> float:
    if made.metadata.expires_at is None:
        return math.inf
    return (made.metadata.expires_at - SystemClock().now()).total_seconds()


def lives(bao: OpenBao, lease: str) -> bool:
    return bao.call("POST", "sys/leases/lookup", {"lease_id": lease})[0] == 200


def token_lives(bao: OpenBao, token: str) -> bool:
    return bao.call("GET", "auth/token/lookup-self", token=token)[0] == 200


@dataclass(frozen=True, slots=True)
class Users:
    """An identity that logs in with userpass and may issue leased certificates, which need no other server."""

    bao: OpenBao
    name: str

    @property
    def issue(self) -> str:
        return f"{self.name}/issue/app"

    def spec(self, path: str = "", **more: Any) -> dict[str, Any]:
        auth = {"userPass": {"path": self.name, "username": "ann", "secretRef": {"name": "p", "key": "p"}}}
        body = {"method": "POST", "parameters": {"common_name": "app.example"}}
        return {"path": path or self.issue, "provider": {"server": self.bao.url, "auth": auth}, **body, **more}

    @property
    def sent(self) -> dict[str, str]:
        return {"/provider/auth/userPass/secretRef": "pass"}


def make_users(bao: OpenBao, *, lease: str = "1h", cleaning: str = CLEANING, **token: Any) -> Users:
    name = f"pki-{next(_NUMBERS)}"
    bao.enable(name, "pki")
    bao.must("POST", f"sys/mounts/{name}/tune", {"max_lease_ttl": "48h"})
    bao.must("POST", f"{name}/root/generate/internal", {"common_name": "root", "ttl": "48h", "key_type": "ec"})
    role = {"allow_any_name": True, "generate_lease": True, "ttl": lease, "key_type": "ec", "key_bits": 256}
    bao.must("POST", f"{name}/roles/app", role)
    rules = f'path "{name}/*" {{ capabilities = ["update", "read"] }}\n'
    bao.policy(name, rules + 'path "auth/token/create" { capabilities = ["update"] }\n' + cleaning)
    bao.enable_auth(name, "userpass")
    bao.must("POST", f"auth/{name}/users/ann", {"password": "pass", "token_policies": name, **token})
    return Users(bao, name)


# --- values ----------------------------------------------------------------------------------------------------------


async def test_members_of_data_are_values_with_numbers_as_written(bao: OpenBao) -> None:
    mount = f"dynamic-{next(_NUMBERS)}"
    bao.enable(mount, version=1)
    bao.must("POST", f"{mount}/app", {"text": "a", "number": 12345678901234567890, "list": [1, "b"], "none": None})

    async with generator(spec_of(bao, f"/{mount}/app"), static(bao.root_token)) as session:
        made = await session.generate(GenerateRequest())

    assert texts(made) == {"text": "a", "number": "12345678901234567890", "list": '[1,"b"]', "none": ""}
    assert made.state is None


async def test_get_parameters_go_into_the_query(bao: OpenBao, mount: str) -> None:
    bao.put(mount, "app", {"value": "old"})
    bao.put(mount, "app", {"value": "new"})
    spec = spec_of(bao, f"{mount}/data/app", getParameters={"version": ["1"]})

    async with generator(spec, static(bao.root_token)) as session:
        made = await session.generate(GenerateRequest())

    assert json.loads(texts(made)["data"]) == {"value": "old"}


@pytest.mark.parametrize(
    ("result_type", "member"),
    [pytest.param("Raw", "request_id", id="Raw"), pytest.param("Auth", "client_token", id="Auth")],
)
async def test_other_result_types_give_other_members(bao: OpenBao, result_type: str, member: str) -> None:
    spec = spec_of(bao, "auth/token/create", method="POST", parameters={"ttl": "1h"}, resultType=result_type)

    async with generator(spec, static(bao.root_token)) as session:
        made = await session.generate(GenerateRequest())

    assert texts(made)[member]


async def test_list_gives_the_keys(bao: OpenBao, mount: str) -> None:
    bao.put(mount, "app", {"value": "x"})

    async with generator(spec_of(bao, f"{mount}/metadata", method="LIST"), static(bao.root_token)) as session:
        made = await session.generate(GenerateRequest())

    assert texts(made) == {"keys": '["app"]'}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_empty_answer_is_an_error_unless_it_is_allowed(bao: OpenBao, mount: str, method: str) -> None:
    spec = spec_of(bao, f"{mount}/data/absent", method=method)

    async with generator(spec, static(bao.root_token)) as session:
        with pytest.raises(ProviderError) as caught:
            await session.generate(GenerateRequest())
    async with generator({**spec, "allowEmptyResponse": True}, static(bao.root_token)) as session:
        made = await session.generate(GenerateRequest())

    assert caught.value.reason is ErrorReason.BACKEND_ERROR
    assert "allowEmptyResponse" in caught.value.message
    assert made.data == {}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("nowhere/creds/app", ErrorReason.BACKEND_ERROR, id="no engine"),
        pytest.param("sys/capabilities-self", ErrorReason.BACKEND_ERROR, id="wrong method"),
    ],
)
async def test_a_wrong_path_is_an_error_that_names_it(bao: OpenBao, path: str, reason: ErrorReason) -> None:
    async with generator(spec_of(bao, path, allowEmptyResponse=True), static(bao.root_token)) as session:
        with pytest.raises(ProviderError) as caught:
            await session.generate(GenerateRequest())

    assert caught.value.reason is reason
    assert path in caught.value.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"path": "a/../b"}, "/path", id="path"),
        pytest.param({"parameters": [1]}, "/parameters", id="parameters"),
        pytest.param({"provider": {"server": "vault:8200"}}, "/provider/server", id="server"),
        pytest.param({"provider": {"server": "https://v", "auth": {}}}, "/provider/auth", id="auth"),
    ],
)
async def test_a_wrong_configuration_names_the_field(bao: OpenBao, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ProviderError) as caught:
        make(VaultDynamicSecretGenerator, VaultDynamicSecretSpec, {**spec_of(bao, "p"), **change})

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert caught.value.message.startswith(f"{field}: ")


# --- leases ----------------------------------------------------------------------------------------------------------


async def test_a_lease_is_state_and_cleanup_revokes_it(bao: OpenBao) -> None:
    users = make_users(bao)
    async with generator(users.spec(), users.sent) as session:
        made = await session.generate(GenerateRequest(idempotency_key="k"))
        state = state_of(made)
        assert set(state) == {"lease_id"}
        assert seconds_left(made) == pytest.approx(3600, abs=60)
        assert lives(bao, state["lease_id"])
        assert made.state is not None

        await session.cleanup(made.state)
        await session.cleanup(made.state)

    assert not lives(bao, state["lease_id"])


async def test_a_lease_of_a_namespace_is_revoked_in_that_namespace(bao: OpenBao) -> None:
    inner = f"leases{next(_NUMBERS)}"
    bao.must("POST", f"sys/namespaces/{inner}", {})
    spec = spec_of(bao, "auth/token/create", method="POST", parameters={"ttl": "1h"}, resultType="Auth")
    spec["provider"]["namespace"] = inner
    spec["provider"]["auth"]["namespace"] = inner
    bao.policy("tokens", 'path "auth/token/*" { capabilities = ["update"] }', namespace=inner)
    token = bao.token("tokens", namespace=inner)

    async with generator(spec, static(token)) as session:
        made = await session.generate(GenerateRequest(idempotency_key="namespace"))
        assert state_of(made)["namespace"] == inner
        assert made.state is not None
        await session.cleanup(made.state)

    assert bao.call("GET", "auth/token/lookup-self", token=texts(made)["client_token"], namespace=inner)[0] == 403


async def test_a_lease_outlives_its_session_and_a_login_token_with_a_shorter_life(bao: OpenBao) -> None:
    users = make_users(bao, lease="1h", token_ttl="2s")
    async with generator(users.spec(), users.sent) as session:
        made = await session.generate(GenerateRequest(idempotency_key="k"))
    await SystemClock().sleep(3)  # longer than the login token lives without the lease

    assert lives(bao, state_of(made)["lease_id"])
    assert seconds_left(made) == pytest.approx(3600, abs=60)

    async with generator(users.spec(), users.sent) as restarted:
        assert made.state is not None
        await restarted.cleanup(made.state)

    assert not lives(bao, state_of(made)["lease_id"])


@pytest.mark.parametrize(
    "token",
    [
        pytest.param({"token_ttl": "10m", "token_max_ttl": "20m"}, id="maximum life"),
        pytest.param({"token_period": "20m"}, id="periodic"),
        pytest.param({"token_type": "batch", "token_ttl": "20m"}, id="batch"),
    ],
)
async def test_values_expire_with_a_login_token_that_cannot_outlive_the_lease(
    bao: OpenBao, token: dict[str, str]
) -> None:
    users = make_users(bao, lease="1h", **token)

    async with generator(users.spec(), users.sent) as session:
        made = await session.generate(GenerateRequest(idempotency_key="k"))

    assert seconds_left(made) == pytest.approx(1200, abs=60)


async def test_cleanup_without_the_policy_names_the_path_to_grant(bao: OpenBao) -> None:
    users = make_users(bao, cleaning="")  # leases of certificates cannot be renewed, so only a revocation ends them

    async with generator(users.spec(), users.sent) as session:
        made = await session.generate(GenerateRequest(idempotency_key="k"))
        assert made.state is not None
        with pytest.raises(ProviderError) as caught:
            await session.cleanup(made.state)

    assert caught.value.reason is ErrorReason.PERMISSION_DENIED
    assert "sys/leases/revoke" in caught.value.message


async def test_a_repeated_call_revokes_the_lease_of_its_lost_response(bao: OpenBao) -> None:
    users = make_users(bao)

    async with generator(users.spec(), users.sent) as session:
        lost = state_of(await session.generate(GenerateRequest(idempotency_key="k")))["lease_id"]
        again = state_of(await session.generate(GenerateRequest(idempotency_key="k")))["lease_id"]
        other = state_of(await session.generate(GenerateRequest(idempotency_key="l")))["lease_id"]

    assert [lives(bao, lease) for lease in (lost, again, other)] == [False, True, True]


async def test_a_lost_answer_is_cleaned_up_by_its_key_also_in_another_session(bao: OpenBao) -> None:
    users = make_users(bao)
    async with generator(users.spec(), users.sent) as session:
        lost = state_of(await session.generate(GenerateRequest(idempotency_key="key-1")))["lease_id"]

    async with generator(users.spec(), users.sent) as session:
        assert await session.cleanup_lost("key-1")
        with pytest.raises(ProviderError) as caught:
            await session.cleanup_lost("key-2")

    assert not lives(bao, lost)
    assert caught.value.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_a_lease_of_an_unusable_response_is_revoked(bao: OpenBao) -> None:
    users = make_users(bao)

    async with generator(users.spec(resultType="Auth"), users.sent) as session:
        with pytest.raises(ProviderError):
            await session.generate(GenerateRequest(idempotency_key="k"))

    status, answer = bao.call("LIST", f"sys/leases/lookup/{users.issue}")
    assert status == 404, answer


async def test_a_certificate_without_lease_expires_with_itself(bao: OpenBao) -> None:
    users = make_users(bao)
    bao.must(
        "POST", f"{users.name}/roles/app", {"allow_any_name": True, "ttl": "2h", "key_type": "ec", "key_bits": 256}
    )

    async with generator(users.spec(), users.sent) as session:
        made = await session.generate(GenerateRequest())

    assert made.state is None
    assert seconds_left(made) == pytest.approx(7200, abs=120)


# --- tokens ----------------------------------------------------------------------------------------------------------


async def test_a_created_token_is_state_by_its_accessor_and_cleanup_revokes_it(bao: OpenBao) -> None:
    revoking = 'path "auth/token/revoke-accessor" { capabilities = ["update"] }\n'
    users = make_users(bao, cleaning=revoking, token_ttl="2s")
    spec = users.spec("auth/token/create", parameters={"ttl": "1h", "policies": ["default"]}, resultType="Auth")

    async with generator(spec, users.sent) as session:
        made = await session.generate(GenerateRequest(idempotency_key="k"))
    token = texts(made)["client_token"]
    await SystemClock().sleep(3)
    assert token_lives(bao, token)  # though its parent would have expired
    assert set(state_of(made)) == {"accessor"}
    assert token not in json.dumps(state_of(made))

    async with generator(spec, users.sent) as session:
        assert made.state is not None
        await session.cleanup(made.state)
        await session.cleanup(made.state)

    assert not token_lives(bao, token)


async def test_a_state_of_something_else_is_refused(bao: OpenBao) -> None:
    async with generator(spec_of(bao, "p"), static(bao.root_token)) as session:
        with pytest.raises(ProviderError) as caught:
            await session.cleanup(SecretBytes(b"[]"))

    assert caught.value.reason is ErrorReason.INVALID_REQUEST
