"""Tokens of a running provider on a real server: shared, expired, revoked, renewed, given back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from eso_api.values import SecretBytes
from eso_provider_vault.dynamic import VaultDynamicSecretGenerator
from eso_provider_vault.provider import PROVIDER
from eso_provider_vault.store import VaultStore
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import opened, read
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, GenerateRequest, Token
from kubebase.clock import SystemClock

_NUMBERS = itertools.count(1)
CLOCK = SystemClock()
LOOPBACK = AddressPolicy.parse(["loopback"])


class Users:
    """A userpass mount with one user, who may read one secret."""

    def __init__(self, bao: OpenBao, mount: str, **token: Any) -> None:
        self.bao = bao
        self.mount = mount
        bao.put(mount, "app", {"password": "value"})
        bao.policy(mount, f'path "{mount}/data/app" {{ capabilities = ["read"] }}')
        bao.enable_auth(mount, "userpass")
        bao.must("POST", f"auth/{mount}/users/ann", {"password": "pass", "token_policies": mount, **token})
        self.sent = {"/auth/userPass/secretRef": "pass"}

    @property
    def spec(self) -> dict[str, Any]:
        auth = {"userPass": {"path": self.mount, "username": "ann", "secretRef": {"name": "p", "key": "p"}}}
        return {"server": self.bao.url, "path": self.mount, "auth": auth}

    @property
    def key(self) -> str:
        return f"{self.mount}/data/app"

    def context(self, namespace: str = "team") -> Context:
        return call_context(VaultStore, self.spec, self.sent, namespace=namespace)

    def generator(self, path: str = "") -> Context:
        spec = {"path": path or self.key, "provider": self.spec}
        sent = {f"/provider{pointer}": value for pointer, value in self.sent.items()}
        return call_context(VaultDynamicSecretGenerator, spec, sent)


async def value_of(provider: InMemory, context: Context, key: str = "app") -> str:
    result = await provider.get_one(context, key, property="password")
    if isinstance(result.outcome, ProviderError):
        raise result.outcome
    assert isinstance(result.outcome, SecretBytes)
    return result.outcome.reveal().decode()


async def test_stores_of_several_namespaces_and_generators_share_one_login(
    bao: OpenBao, mount: str, provider: InMemory
) -> None:
    users = Users(bao, mount)
    mark = bao.mark()

    for namespace in ("one", "two", "three"):
        assert await value_of(provider, users.context(namespace)) == "value"
    await provider.generate(users.generator())

    assert bao.audited(mark).logins == 1


async def test_other_credentials_for_the_same_user_are_another_identity(
    bao: OpenBao, mount: str, provider: InMemory
) -> None:
    users = Users(bao, mount)
    assert await value_of(provider, users.context()) == "value"

    wrong = call_context(VaultStore, users.spec, {"/auth/userPass/secretRef": "guess"}, namespace="thief")
    with pytest.raises(ProviderError) as caught:
        await value_of(provider, wrong)

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_users_of_one_server_never_see_each_others_values(bao: OpenBao, mount: str, provider: InMemory) -> None:
    users = Users(bao, mount)
    bao.put(mount, "other", {"password": "of bob"})
    bao.policy(f"{mount}-bob", f'path "{mount}/data/other" {{ capabilities = ["read"] }}')
    bao.must("POST", f"auth/{mount}/users/bob", {"password": "pass", "token_policies": f"{mount}-bob"})
    auth = {"userPass": {**users.spec["auth"]["userPass"], "username": "bob"}}
    bob = call_context(VaultStore, {**users.spec, "auth": auth}, users.sent, namespace="bob")

    assert await value_of(provider, users.context("ann")) == "value"
    assert await value_of(provider, bob, "other") == "of bob"
    for context, forbidden in ((users.context("ann"), "other"), (bob, "app")):
        with pytest.raises(ProviderError) as caught:
            await value_of(provider, context, forbidden)
        assert caught.value.reason is ErrorReason.PERMISSION_DENIED


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"token_type": "batch", "token_ttl": "1s"}, id="batch token"),
        pytest.param({"token_ttl": "1s", "token_explicit_max_ttl": "1s"}, id="service token at its maximum"),
    ],
)
async def test_500_reads_with_an_expired_token_make_one_login(
    bao: OpenBao, mount: str, options: dict[str, str]
) -> None:
    users = Users(bao, mount, **options)
    async with opened(users.spec, users.sent) as store:
        await read(store, users.key)
        await CLOCK.sleep(1.5)
        longer = {"token_ttl": "1h", "token_explicit_max_ttl": "1h"}  # so that the next one outlives the reads
        bao.must("POST", f"auth/{mount}/users/ann", longer)
        mark = bao.mark()

        replies = await asyncio.gather(*(read(store, users.key) for _ in range(500)))

    assert {reply.status for reply in replies} == {200}
    assert bao.audited(mark).logins == 1


async def test_a_token_that_is_revoked_in_mid_run_is_replaced_without_an_error(
    bao: OpenBao, mount: str, provider: InMemory
) -> None:
    users = Users(bao, mount)
    await value_of(provider, users.context())
    bao.must("POST", f"sys/leases/revoke-prefix/auth/{mount}/login")
    mark = bao.mark()

    values = await asyncio.gather(*(value_of(provider, users.context(f"n{number}")) for number in range(50)))

    assert set(values) == {"value"}
    assert bao.audited(mark).logins == 1


async def test_a_denied_path_causes_no_login_storm(bao: OpenBao, mount: str, provider: InMemory) -> None:
    users = Users(bao, mount)
    await value_of(provider, users.context())
    mark = bao.mark()

    for _ in range(30):
        with pytest.raises(ProviderError) as caught:
            await value_of(provider, users.context(), "forbidden")

    assert caught.value.reason is ErrorReason.PERMISSION_DENIED
    assert bao.audited(mark).logins == 0
    assert bao.audited(mark).count("read", "auth/token/lookup-self") <= 5


async def test_a_periodic_login_token_is_renewed_while_nothing_is_read(bao: OpenBao, mount: str) -> None:
    users = Users(bao, mount, token_period="3s")
    mark = bao.mark()

    async with opened(users.spec, users.sent) as store:
        await read(store, users.key)
        await CLOCK.sleep(7)
        assert (await read(store, users.key)).ok

    asked = bao.audited(mark)
    assert asked.logins == 1
    assert asked.count("update", "auth/token/renew-self") >= 2


async def test_a_periodic_token_of_a_secret_is_renewed_before_it_expires(bao: OpenBao, mount: str) -> None:
    users = Users(bao, mount)
    token = bao.token(mount, period="7s")
    spec = {**users.spec, "auth": {"tokenSecretRef": {"name": "t", "key": "t"}}}

    async with opened(spec, {"/auth/tokenSecretRef": token}) as store:
        await read(store, users.key)
        await CLOCK.sleep(10)
        assert (await read(store, users.key)).ok

    assert bao.call("GET", "auth/token/lookup-self", token=token)[0] == 200  # and it is not revoked


async def test_the_provider_revokes_its_token_when_it_ends(bao: OpenBao, mount: str) -> None:
    users = Users(bao, mount)
    async with InMemory(PROVIDER, addresses=LOOPBACK) as provider:
        await value_of(provider, users.context())
        await value_of(provider, users.context("other"))
        mark = bao.mark()

    assert bao.audited(mark).count("update", "auth/token/revoke-self") == 1


# --- tokens of ServiceAccounts ---------------------------------------------------------------------------------------


@pytest.fixture
def issued(bao: OpenBao, mount: str) -> Callable[..., Context]:
    """Calls of stores whose jwt login uses a ServiceAccount; every call carries a new token of it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    bao.put(mount, "app", {"password": "value"})
    bao.policy(mount, f'path "{mount}/*" {{ capabilities = ["read"] }}')
    bao.enable_auth(mount, "jwt")
    bao.must("POST", f"auth/{mount}/config", {"jwt_validation_pubkeys": [pem.decode()]})
    role = {"role_type": "jwt", "user_claim": "sub", "bound_audiences": ["vault"], "token_policies": mount}
    bao.must("POST", f"auth/{mount}/role/app", role)

    def make(name: str = "app", uid: str = "uid-1", *, good: bool = True, store: str = "team") -> Context:
        now = int(CLOCK.now().timestamp())
        claims = {"sub": name, "aud": "vault", "iat": now, "exp": now + 600, "jti": str(next(_NUMBERS))}
        signed = jwt.encode(claims, key, algorithm="RS256") if good else "expired.and.gone"
        token = Token(SecretBytes(signed.encode()), None, ("vault",), namespace="accounts", name=name, uid=uid)
        account = {"kubernetesServiceAccountToken": {"serviceAccountRef": {"name": name}}}
        spec = {"server": bao.url, "path": mount, "auth": {"jwt": {"path": mount, "role": "app", **account}}}
        pointer = "/auth/jwt/kubernetesServiceAccountToken/serviceAccountRef"
        return call_context(VaultStore, spec, {pointer: token}, namespace=store)

    return make


async def test_new_tokens_of_one_service_account_cause_no_new_login(
    bao: OpenBao, issued: Callable[..., Context], provider: InMemory
) -> None:
    mark = bao.mark()

    for _ in range(10):
        assert await value_of(provider, issued()) == "value"

    assert bao.audited(mark).logins == 1


async def test_stores_with_one_service_account_share_a_login_though_each_has_a_token_of_its_own(
    bao: OpenBao, issued: Callable[..., Context], provider: InMemory
) -> None:
    mark = bao.mark()

    for store in ("one", "two", "three"):
        assert await value_of(provider, issued(store=store)) == "value"

    assert bao.audited(mark).logins == 1


async def test_another_service_account_is_another_login(
    bao: OpenBao, issued: Callable[..., Context], provider: InMemory
) -> None:
    mark = bao.mark()

    await value_of(provider, issued("app"))
    await value_of(provider, issued("other", "uid-2"))
    await value_of(provider, issued("app", "uid-3"))  # deleted and made again: not the same account

    assert bao.audited(mark).logins == 3


async def test_a_new_login_uses_the_newest_token_of_the_account(
    bao: OpenBao, mount: str, issued: Callable[..., Context], provider: InMemory
) -> None:
    await value_of(provider, issued())
    bao.must("POST", f"sys/leases/revoke-prefix/auth/{mount}/login")

    assert await value_of(provider, issued()) == "value"


async def test_a_service_account_with_a_bad_token_gets_nothing(
    issued: Callable[..., Context], provider: InMemory
) -> None:
    with pytest.raises(ProviderError) as caught:
        await value_of(provider, issued("stranger", "uid-9", good=False))

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED


# --- nothing of it shows ---------------------------------------------------------------------------------------------


async def test_no_credential_of_a_login_is_ever_logged_or_reported(
    bao: OpenBao, mount: str, provider: InMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    users = Users(bao, mount)
    messages = []
    bad = {"/auth/userPass/secretRef": "CANARY-password"}
    role = {"roleId": "CANARY-role", "secretRef": {"name": "s", "key": "s"}}
    contexts = [
        call_context(VaultStore, users.spec, bad),
        call_context(
            VaultStore, {**users.spec, "auth": {"appRole": role}}, {"/auth/appRole/secretRef": "CANARY-secret-id"}
        ),
        call_context(
            VaultStore,
            {**users.spec, "auth": {"jwt": {"path": mount, "role": "app", "secretRef": {"name": "j", "key": "j"}}}},
            {"/auth/jwt/secretRef": "CANARY.jwt.token"},
        ),
    ]
    for context in contexts:
        with pytest.raises(ProviderError) as caught:
            await value_of(provider, context)
        messages.append(str(caught.value) + repr(caught.value))
    with pytest.raises(ProviderError) as caught:
        await provider.generate(
            call_context(
                VaultDynamicSecretGenerator,
                {"path": "x", "provider": users.spec},
                {f"/provider{pointer}": value for pointer, value in bad.items()},
            ),
            GenerateRequest(idempotency_key="k"),
        )
    messages.append(str(caught.value))
    await value_of(provider, users.context())
    reported = capsys.readouterr()

    assert "call handled" in reported.out
    assert "CANARY" not in "".join(messages) + reported.out + reported.err
    assert "pass" not in reported.out.replace("userPass", "")


# --- objects that are gone --------------------------------------------------------------------------------------------


async def test_the_token_of_a_login_is_revoked_when_its_last_store_is_gone(
    bao: OpenBao, mount: str, provider: InMemory
) -> None:
    users = Users(bao, mount)
    one, two = users.context("one"), users.context("two")
    for context in (one, two):
        assert await value_of(provider, context) == "value"
    mark = bao.mark()

    await provider.close_sessions(one.config.ref)
    assert await value_of(provider, two) == "value"
    shared = bao.audited(mark)
    await provider.close_sessions(two.config.ref)
    await provider.sessions.close()  # waits for sessions that are being closed

    assert bao.audited(mark).revocations == 1
    assert (shared.logins, shared.revocations) == (0, 0)
