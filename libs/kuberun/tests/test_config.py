"""Choosing server and credentials: kubeconfig files and the pod's service account."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock
from kuberun.config import load
from kuberun.connection import Connection, Credential
from kuberun.errors import ConfigError
from kuberun.exec_plugin import ExecPlugin
from kuberun.testing.authority import Authority
from kuberun.testing.builders import kubeconfig

PLANTED = "PLANTED-token-0815"
PEM = "-----BEGIN CERTIFICATE-----\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def credential(connection: Connection) -> Credential:
    return await connection.credentials.current()


# --- which settings apply --------------------------------------------------------------------------------------------


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_text(PEM)
    (folder / "namespace").write_text("pod-namespace")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("environ", "explicit", "expected"),
    [
        pytest.param({**IN_POD, "KUBECONFIG": "env"}, True, "explicit", id="an explicit file before everything"),
        pytest.param({**IN_POD, "KUBECONFIG": "env"}, False, "env", id="then KUBECONFIG"),
        pytest.param(IN_POD, False, "pod", id="then the pod"),
        pytest.param({}, False, "home", id="then the home directory"),
    ],
)
def test_the_order_of_places(tmp_path: Path, pod: Path, environ: dict[str, str], explicit: bool, expected: str) -> None:
    def config(where: str) -> Path:
        (tmp_path / where).mkdir()
        return kubeconfig(tmp_path / where / "config", cluster={"server": f"https://{where}"})

    if "KUBECONFIG" in environ:
        environ = {**environ, "KUBECONFIG": str(config("env"))}
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
    environ = {**environ, "HOME": str(tmp_path)}

    connection = load(config("explicit") if explicit else None, environ=environ, service_account=pod)

    servers = {where: f"https://{where}" for where in ("explicit", "env", "home")} | {"pod": "https://10.0.0.1:443"}
    assert connection.server == servers[expected]


def test_nothing_at_all_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KUBECONFIG is not set, .*config does not exist, and this is no pod"):
        load(environ={"HOME": str(tmp_path)})


# --- in a pod --------------------------------------------------------------------------------------------------------


async def test_a_pod_uses_its_service_account(pod: Path) -> None:
    connection = load(environ=IN_POD, service_account=pod)

    assert connection.server == "https://10.0.0.1:443"
    assert connection.namespace == "pod-namespace"
    assert connection.tls.ca == PEM.encode()
    assert await credential(connection) == Credential("Bearer pod-token")


def test_an_ipv6_address_gets_its_brackets(pod: Path) -> None:
    connection = load(environ={**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=pod)

    assert connection.server == "https://[fd00::1]:443"


async def test_a_rotated_token_is_read_within_a_minute(pod: Path) -> None:
    clock = VirtualClock()
    connection = load(environ=IN_POD, service_account=pod, clock=clock)
    assert await credential(connection) == Credential("Bearer pod-token")

    (pod / "token").write_text("rotated")
    await clock.advance(59)
    before = await credential(connection)
    await clock.advance(1)
    after = await credential(connection)

    assert (before, after) == (Credential("Bearer pod-token"), Credential("Bearer rotated"))


async def test_a_refused_token_is_read_again_at_once(pod: Path) -> None:
    connection = load(environ=IN_POD, service_account=pod, clock=VirtualClock())
    refused = await credential(connection)

    same = await connection.credentials.refreshed(refused)
    (pod / "token").write_text("rotated")
    other = await connection.credentials.refreshed(refused)

    assert same is None
    assert other == Credential("Bearer rotated")
    assert await credential(connection) == other


async def test_a_token_that_vanishes_for_a_moment_does_not_matter(pod: Path) -> None:
    clock = VirtualClock()
    connection = load(environ=IN_POD, service_account=pod, clock=clock)
    first = await credential(connection)

    (pod / "token").unlink()
    await clock.advance(3600)

    assert await credential(connection) == first


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), ("", "empty"), ("two words", "characters")])
def test_a_pod_without_a_usable_token_says_so_at_once(pod: Path, content: str | None, message: str) -> None:
    if content is None:
        (pod / "token").unlink()
    else:
        (pod / "token").write_text(content)

    with pytest.raises(ConfigError, match=f"service account: .*{message}"):
        load(environ=IN_POD, service_account=pod)


# --- kubeconfig: contexts and files ----------------------------------------------------------------------------------


async def test_a_context_gives_server_namespace_and_credentials(tmp_path: Path) -> None:
    connection = load(kubeconfig(tmp_path / "config", {"token": "t"}, {"server": "https://kube.test:6443/"}))

    assert connection.server == "https://kube.test:6443"
    assert connection.namespace == "team"
    assert await credential(connection) == Credential("Bearer t")


async def test_several_files_merge_and_the_first_one_wins(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", {"token": "first"}, contexts=[], **{"current-context": ""})  # type: ignore[arg-type]  # no identifier
    second = kubeconfig(tmp_path / "second", {"token": "second"}, {"server": "https://second"})
    environ = {"KUBECONFIG": os.pathsep.join([str(first), str(tmp_path / "missing"), str(second)])}

    connection = load(environ=environ)

    assert connection.server == "https://kube.test:6443"
    assert await credential(connection) == Credential("Bearer first")


async def test_paths_start_at_the_file_they_stand_in(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("from-file")
    (tmp_path / "sub" / "ca.crt").write_text(PEM)
    file = kubeconfig(tmp_path / "sub" / "config", {"tokenFile": "token"}, {"certificate-authority": "ca.crt"})

    connection = load(file)

    assert connection.tls.ca == PEM.encode()
    assert await credential(connection) == Credential("Bearer from-file")


TWO_CONTEXTS = [
    {"name": "main", "context": {"cluster": "c", "user": "u"}},
    {"name": "other", "context": {"cluster": "c"}},
]


async def test_a_context_without_user_is_anonymous(tmp_path: Path) -> None:
    connection = load(kubeconfig(tmp_path / "config", {"token": "t"}, contexts=TWO_CONTEXTS), context="other")

    assert connection.namespace == "default"
    assert await credential(connection) == Credential()


@pytest.mark.parametrize(
    ("fields", "context", "message"),
    [
        pytest.param(
            {"contexts": TWO_CONTEXTS}, "third", "no context 'third'; it has: main, other", id="unknown context"
        ),
        pytest.param(
            {"current-context": ""}, "", r"no current-context; name one of its contexts \(main\)", id="none chosen"
        ),
        pytest.param({"clusters": []}, "", "context 'main': cluster 'c' is not defined", id="cluster missing"),
        pytest.param({"users": None}, "", "context 'main': user 'u' is not defined", id="user missing"),
        pytest.param({"contexts": "x"}, "", r"Expected `array.*`, got `str` - at `\$.contexts`", id="wrong type"),
    ],
)
def test_a_broken_kubeconfig_says_which_part(
    tmp_path: Path, fields: dict[str, Any], context: str, message: str
) -> None:
    file = kubeconfig(tmp_path / "config", **fields)

    with pytest.raises(ConfigError, match=message) as caught:
        load(file, context=context)
    assert str(file) in str(caught.value)


def test_a_missing_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere: No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="none of these kubeconfig files exists: /no/a, /no/b"):
        load(environ={"KUBECONFIG": "/no/a:/no/b"})


def test_broken_yaml_gives_the_place_and_never_the_line(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(f"users:\n- user: {{token: {PLANTED}: x\n")

    with pytest.raises(ConfigError, match="not valid YAML: line 2, column 35") as caught:
        load(file)
    assert PLANTED not in str(caught.value)
    assert caught.value.__suppress_context__


async def test_a_token_of_digits_stays_text(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig(tmp_path / "config", {"token": "x"}).read_text().replace("token: x", "token: 0012"))

    assert await credential(load(file)) == Credential("Bearer 0012")


# --- kubeconfig: clusters --------------------------------------------------------------------------------------------


def test_tls_settings(tmp_path: Path) -> None:
    data = load(
        kubeconfig(tmp_path / "config", cluster={"certificate-authority-data": b64(PEM), "tls-server-name": "x"})
    )
    insecure = load(kubeconfig(tmp_path / "config", cluster={"insecure-skip-tls-verify": True}))

    assert (data.tls.ca, data.tls.server_name, data.tls.verify) == (PEM.encode(), "x", True)
    assert (insecure.tls.ca, insecure.tls.verify) == (None, False)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": "kube.test:6443"}, "server must be an address"),
        ({"server": ""}, "server must be an address"),
        ({"server": f"https://u:{PLANTED}@kube.test"}, "credentials belong into the user entry"),
        ({"proxy-url": "socks5://p"}, "proxy-url"),
        ({"certificate-authority-data": "%%%"}, "certificate-authority-data: not valid base64"),
        ({"certificate-authority": "nowhere.crt"}, "certificate-authority: cannot read"),
        ({"certificate-authority-data": b64(PEM), "insecure-skip-tls-verify": True}, "not both"),
    ],
)
def test_a_broken_cluster_says_what_is_wrong(tmp_path: Path, cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"cluster 'c': .*{message}") as caught:
        load(kubeconfig(tmp_path / "config", cluster=cluster))
    assert PLANTED not in str(caught.value)


# --- kubeconfig: users -----------------------------------------------------------------------------------------------


async def test_user_name_and_password(tmp_path: Path) -> None:
    connection = load(kubeconfig(tmp_path / "config", {"username": "jane", "password": "doe"}))

    assert await credential(connection) == Credential("Basic " + b64("jane:doe"))


async def test_a_client_certificate_as_data_or_files(tmp_path: Path) -> None:
    identity = Authority(SystemClock().now()).issue("jane")
    (tmp_path / "jane.crt").write_bytes(identity.certificate)
    (tmp_path / "jane.key").write_bytes(identity.key)
    files = {"client-certificate": "jane.crt", "client-key": "jane.key"}
    data = {
        "client-certificate-data": b64(identity.certificate.decode()),
        "client-key-data": b64(identity.key.decode()),
    }

    assert await credential(load(kubeconfig(tmp_path / "config", files))) == Credential(certificate=identity)
    assert await credential(load(kubeconfig(tmp_path / "config", data))) == Credential(certificate=identity)


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"acme.com/x": ["1"]}}

    connection = load(kubeconfig(tmp_path / "config", user))

    assert connection.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-acme.com%2Fx", "1"),
    )


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"token": PLANTED, "username": "jane"}, "either a token or a user name"),
        ({"token": f"{PLANTED} {PLANTED}"}, "characters that no token has"),
        ({"client-certificate-data": b64(PEM)}, "go together"),
        ({"client-certificate-data": PLANTED, "client-key-data": PLANTED}, "not valid base64"),
        ({"auth-provider": {"name": "gcp"}}, "use an exec plugin"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "exec apiVersion"),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}},
            "needs a terminal",
        ),
    ],
)
def test_a_broken_user_says_what_is_wrong_and_no_credential(tmp_path: Path, user: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"user 'u': .*{message}") as caught:
        load(kubeconfig(tmp_path / "config", user))
    assert PLANTED not in str(caught.value)


async def test_no_credential_is_in_any_repr(tmp_path: Path) -> None:
    identity = Authority(SystemClock().now()).issue("jane")
    plugin = ExecPlugin("x", "v1", args=(PLANTED,), env=(("A", PLANTED),))
    connection = load(kubeconfig(tmp_path / "config", {"token": PLANTED}))

    for text in (connection, connection.credentials, await credential(connection), identity, plugin):
        assert PLANTED not in repr(text)
        assert "PRIVATE KEY" not in repr(text)
