"""Every login method that OpenBao serves, against a real server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from eso_api.stores.vault import VaultProvider
from eso_provider_vault.store import VaultStore
from eso_provider_vault.testing.events import ReplyServer, StubResponse
from eso_provider_vault.testing.openbao import OpenBao
from eso_provider_vault.testing.sessions import opened, opened_openbao, read
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import SystemClock
from kuberun.testing.authority import Authority

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Account:
    """A server with one secret that the policy `name` allows to read."""

    bao: OpenBao
    name: str

    def spec(self, **auth: Any) -> dict[str, Any]:
        return {"server": self.bao.url, "path": self.name, "auth": auth}

    @property
    def key(self) -> str:
        return f"{self.name}/data/app"


def make_account(bao: OpenBao, *, namespace: str = "") -> Account:
    name = f"auth-{next(_NUMBERS)}"
    bao.enable(name, namespace=namespace)
    bao.put(name, "app", {"password": "value"}, namespace=namespace)
    bao.policy(name, f'path "{name}/*" {{ capabilities = ["read"] }}', namespace=namespace)
    return Account(bao, name)


@pytest.fixture
def account(bao: OpenBao) -> Account:
    return make_account(bao)


def ref(name: str = "credentials", key: str = "value") -> dict[str, str]:
    return {"name": name, "key": key}


def app_role(account: Account, mount: str, **options: Any) -> tuple[str, str]:
    """Enable appRole; returns role id and secret id."""
    bao = account.bao
    bao.enable_auth(mount, "approle")
    bao.must("POST", f"auth/{mount}/role/app", {"token_policies": account.name, **options})
    role_id = bao.must("GET", f"auth/{mount}/role/app/role-id")["data"]["role_id"]
    return role_id, bao.must("POST", f"auth/{mount}/role/app/secret-id")["data"]["secret_id"]


# --- token -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
async def test_a_line_break_at_the_end_of_a_token_is_trimmed(account: Account, ending: str) -> None:
    token = account.bao.token(account.name)

    async with opened(account.spec(tokenSecretRef=ref()), {"/auth/tokenSecretRef": token + ending}) as store:
        assert (await read(store, account.key)).ok


async def test_the_openbao_block_logs_in_with_a_token(account: Account) -> None:
    token = account.bao.token(account.name)

    async with opened_openbao(account.spec(tokenSecretRef=ref()), {"/auth/tokenSecretRef": token}) as store:
        assert (await read(store, account.key)).ok


async def test_without_auth_an_agent_before_the_server_adds_the_token(account: Account) -> None:
    async with opened({"server": account.bao.url, "path": account.name}) as store:
        assert (await read(store, account.key)).status == 403


# --- appRole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [opened, opened_openbao], ids=["vault block", "openBao block"])
async def test_app_role_logs_in_with_a_role_id_of_the_spec(account: Account, opening: Any) -> None:
    role_id, secret_id = app_role(account, f"{account.name}-approle")
    auth = {"path": f"{account.name}-approle", "roleId": f" {role_id} ", "secretRef": ref()}

    async with opening(account.spec(appRole=auth), {"/auth/appRole/secretRef": secret_id}) as store:
        assert (await read(store, account.key)).ok


async def test_app_role_logs_in_with_a_role_id_of_a_secret(account: Account) -> None:
    role_id, secret_id = app_role(account, f"{account.name}-approle")
    auth = {"path": f"/{account.name}-approle/", "roleRef": ref("role"), "secretRef": ref("secret")}
    sent = {"/auth/appRole/secretRef": secret_id + "\n", "/auth/appRole/roleRef": role_id + "\n"}

    async with opened(account.spec(appRole=auth), sent) as store:
        assert (await read(store, account.key)).ok


# --- userPass --------------------------------------------------------------------------------------------------------


def user(account: Account, mount: str, *, name: str = "ann", **options: Any) -> None:
    account.bao.enable_auth(mount, "userpass")
    account.bao.must(
        "POST", f"auth/{mount}/users/{name}", {"password": "pass", "token_policies": account.name, **options}
    )


@pytest.mark.parametrize("opening", [opened, opened_openbao], ids=["vault block", "openBao block"])
async def test_user_pass_logs_in(account: Account, opening: Any) -> None:
    user(account, f"{account.name}-users")
    auth = {"path": f"{account.name}-users", "username": " ann ", "secretRef": ref()}

    async with opening(account.spec(userPass=auth), {"/auth/userPass/secretRef": "pass"}) as store:
        assert (await read(store, account.key)).ok


async def test_a_login_goes_to_the_namespace_of_auth(bao: OpenBao) -> None:
    inner = f"ns{next(_NUMBERS)}"
    bao.must("POST", f"sys/namespaces/{inner}", {})
    account = make_account(bao, namespace=inner)
    bao.enable_auth("userpass", "userpass", namespace=inner)
    bao.must("POST", "auth/userpass/users/ann", {"password": "pass", "token_policies": account.name}, namespace=inner)
    auth = {"userPass": {"username": "ann", "secretRef": ref()}}
    sent = {"/auth/userPass/secretRef": "pass"}

    async with opened({**account.spec(**auth), "namespace": inner}, sent) as store:
        assert (await read(store, account.key)).ok
    async with opened({**account.spec(**auth, namespace=inner), "namespace": inner}, sent) as store:
        assert (await read(store, account.key)).ok
    async with opened({**account.spec(**auth, namespace="nowhere"), "namespace": inner}, sent) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert caught.value.message.startswith("/auth/namespace")


# --- jwt -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer of JWTs that the server trusts."""

    key: rsa.RSAPrivateKey

    def token(self, **claims: Any) -> str:
        now = int(SystemClock().now().timestamp())
        return jwt.encode(
            {"iss": "tests", "sub": "app", "iat": now, "exp": now + 600, **claims}, self.key, algorithm="RS256"
        )


def jwt_mount(account: Account, mount: str) -> Issuer:
    issuer = Issuer(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    account.bao.enable_auth(mount, "jwt")
    account.bao.must("POST", f"auth/{mount}/config", {"jwt_validation_pubkeys": [public.decode()]})
    role = {"role_type": "jwt", "user_claim": "sub", "bound_audiences": ["vault"], "token_policies": account.name}
    account.bao.must("POST", f"auth/{mount}/role/app", role)
    return issuer


async def test_jwt_logs_in_with_a_token_of_a_secret(account: Account) -> None:
    issuer = jwt_mount(account, f"{account.name}-jwt")
    auth = {"path": f"{account.name}-jwt", "role": " app ", "secretRef": ref()}

    async with opened(account.spec(jwt=auth), {"/auth/jwt/secretRef": issuer.token(aud="vault") + "\n"}) as store:
        assert (await read(store, account.key)).ok


async def test_jwt_for_another_audience_is_refused_with_a_hint(account: Account) -> None:
    issuer = jwt_mount(account, f"{account.name}-jwt")
    auth = {"path": f"{account.name}-jwt", "role": "app", "secretRef": ref()}
    token = issuer.token(aud="elsewhere")

    async with opened(account.spec(jwt=auth), {"/auth/jwt/secretRef": token}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "audience" in caught.value.message
    assert token not in caught.value.message


# --- cert ------------------------------------------------------------------------------------------------------------


def cert_spec(account: Account, authority: Authority, **auth: Any) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    account.bao.enable_auth(f"{account.name}-cert", "cert")
    role = {"certificate": authority.pem.decode(), "token_policies": account.name}
    account.bao.must("POST", f"auth/{account.name}-cert/certs/app", role)
    pair = authority.issue("app")
    spec = account.spec(cert={"path": f"{account.name}-cert", "clientCert": ref("a"), "secretRef": ref("b"), **auth})
    spec["caProvider"] = {"type": "Secret", "name": "ca", "key": "ca.crt"}
    sent = {"/auth/cert/clientCert": pair.certificate, "/auth/cert/secretRef": pair.key, "/caProvider": account.bao.ca}
    return spec, sent


@pytest.mark.parametrize("role", ["", "app"])
async def test_cert_logs_in_with_the_certificate_of_its_connection(tls_bao: OpenBao, role: str) -> None:
    account = make_account(tls_bao)
    spec, sent = cert_spec(account, Authority(SystemClock().now()), vaultRole=role)

    async with opened(spec, sent) as store:
        assert (await read(store, account.key)).ok


async def test_a_token_of_a_certificate_is_renewed_with_that_certificate(tls_bao: OpenBao) -> None:
    account = make_account(tls_bao)
    spec, sent = cert_spec(account, Authority(SystemClock().now()))
    tls_bao.must("POST", f"auth/{account.name}-cert/certs/app", {"token_period": "3s"})
    mark = tls_bao.mark()

    async with opened(spec, sent) as store:
        await read(store, account.key)
        await SystemClock().sleep(5)
        assert (await read(store, account.key)).ok

    assert tls_bao.audited(mark).logins == 1


async def test_a_certificate_that_no_role_trusts_is_refused(tls_bao: OpenBao) -> None:
    account = make_account(tls_bao)
    spec, sent = cert_spec(account, Authority(SystemClock().now()))
    stranger = Authority(SystemClock().now()).issue("app")
    foreign = {"/auth/cert/clientCert": stranger.certificate, "/auth/cert/secretRef": stranger.key}

    async with opened(spec, {**sent, **foreign}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED


async def test_a_certificate_without_its_key_names_the_fields(tls_bao: OpenBao) -> None:
    account = make_account(tls_bao)
    spec, sent = cert_spec(account, Authority(SystemClock().now()))
    other = Authority(SystemClock().now()).issue("app")

    with pytest.raises(ProviderError) as caught:
        async with opened(spec, {**sent, "/auth/cert/secretRef": other.key}):
            pass

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert "/auth/cert" in caught.value.message


async def test_a_server_that_another_authority_signed_is_unavailable(tls_bao: OpenBao) -> None:
    account = make_account(tls_bao)
    spec, sent = cert_spec(account, Authority(SystemClock().now()))

    async with opened(spec, {**sent, "/caProvider": Authority(SystemClock().now()).pem}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert caught.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "caBundle" in caught.value.message


def test_several_methods_are_a_warning_that_names_the_one_in_use() -> None:
    auth = {"userPass": {"username": "ann", "secretRef": ref()}, "appRole": {"roleId": "r", "secretRef": ref()}}
    config = msgspec.convert({"server": "https://vault", "auth": auth}, VaultProvider)

    assert VaultStore.check_config(config) == ("auth configures appRole, userPass; only appRole is used",)


# --- wrong configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auth", "field"),
    [
        pytest.param({}, "/auth", id="no method at all"),
        pytest.param({"appRole": {"secretRef": ref()}}, "/auth/appRole", id="appRole without a role id"),
        pytest.param(
            {"kubernetes": {"role": " ", "secretRef": ref()}}, "/auth/kubernetes/role", id="no kubernetes role"
        ),
        pytest.param({"userPass": {"username": "", "secretRef": ref()}}, "/auth/userPass/username", id="no user name"),
        pytest.param({"ldap": {"username": "ann"}}, "/auth/ldap/secretRef", id="ldap without a password"),
        pytest.param({"jwt": {"role": "app"}}, "/auth/jwt", id="jwt without a token"),
        pytest.param({"cert": {"clientCert": ref()}}, "/auth/cert/secretRef", id="cert without a key"),
        pytest.param(
            {"userPass": {"username": "ann", "path": "a/../b", "secretRef": ref()}},
            "/auth/userPass/path",
            id="bad mount",
        ),
        pytest.param({"iam": {"vaultRole": " "}}, "/auth/iam/vaultRole", id="iam without a role"),
        pytest.param({"gcp": {"role": ""}}, "/auth/gcp/role", id="gcp without a role"),
    ],
)
async def test_an_incomplete_method_names_the_field(bao: OpenBao, auth: dict[str, Any], field: str) -> None:
    sent = {f"/auth/{name}/{member}": "x" for name in auth for member in ("secretRef", "clientCert")}

    with pytest.raises(ProviderError) as caught:
        async with opened({"server": bao.url, "auth": auth}, sent):
            pass

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert caught.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("auth", "sent", "hint"),
    [
        pytest.param(
            {"appRole": {"roleId": "unknown", "secretRef": ref()}}, "/auth/appRole/secretRef", "secret id", id="appRole"
        ),
        pytest.param(
            {"userPass": {"username": "unknown", "secretRef": ref()}},
            "/auth/userPass/secretRef",
            "password",
            id="userPass",
        ),
        pytest.param(
            {"kubernetes": {"role": "unknown", "secretRef": ref()}},
            "/auth/kubernetes/secretRef",
            "role",
            id="kubernetes",
        ),
        pytest.param(
            {"ldap": {"username": "unknown", "secretRef": ref()}}, "/auth/ldap/secretRef", "ldap", id="no mount"
        ),
    ],
)
async def test_a_refused_login_says_where_it_was_made_and_what_to_check(
    account: Account, auth: dict[str, Any], sent: str, hint: str
) -> None:
    async with opened(account.spec(**auth), {sent: "CANARY-wrong"}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert caught.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert hint in caught.value.message
    assert account.bao.url in caught.value.message
    assert "CANARY" not in caught.value.message


async def test_a_refused_login_shows_the_words_of_the_server(account: Account) -> None:
    app_role(account, f"{account.name}-approle")
    auth = {"path": f"{account.name}-approle", "roleId": "unknown", "secretRef": ref()}

    async with opened(account.spec(appRole=auth), {"/auth/appRole/secretRef": "CANARY-wrong"}) as store:
        with pytest.raises(ProviderError) as caught:
            await read(store, account.key)

    assert 'HTTP 400: "invalid role or secret ID"' in caught.value.message


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        pytest.param(['role "team-a" could not be found'], '"role "team-a" could not be found"', id="the role stays"),
        pytest.param(["token CANARY-jwt-1 is bad"], '"token … is bad"', id="a credential is masked"),
        pytest.param(["token Q0FOQVJZLWp3dC0x is bad"], '"token … is bad"', id="its base64 is masked"),
        pytest.param(["token CANARY-\njwt-1 is\tbad\u0007"], '"token … isbad"', id="control characters inside"),
        pytest.param(["1 error occurred:\n\t* denied\n\n", "more"], '"1 error occurred: * denied ; more"', id="lines"),
        pytest.param(["x" * 5000], '"' + "x" * 200 + '"', id="a long text is cut off"),
        pytest.param([], "(HTTP 400);", id="no words"),
    ],
)
async def test_the_words_of_the_server_are_masked_and_bounded(errors: list[str], expected: str) -> None:
    auth = {"jwt": {"role": "team-a", "secretRef": ref()}}
    body = msgspec.json.encode({"errors": errors})

    async with ReplyServer.started(lambda _: StubResponse(400, body)) as server:
        spec = {"server": server.url, "path": "kv", "auth": auth}
        async with opened(spec, {"/auth/jwt/secretRef": "CANARY-jwt-1"}) as store:
            with pytest.raises(ProviderError) as caught:
                await read(store, "kv/data/app")

    assert expected in caught.value.message
    assert "CANARY-jwt-1" not in caught.value.message
    assert len(caught.value.message) < 600
    assert caught.value.message.isprintable()
