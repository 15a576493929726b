"""Who may use the identity of the provider's own process, and who may receive a proof of it."""

import os
from pathlib import Path

import pytest
from yarl import URL

from eso_sdk.processidentity import (
    MAX_FILE,
    STRICT,
    AmbientIdentity,
    ProcessIdentity,
    ProcessIdentityError,
    ProcessIdentityPolicy,
)
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ObjectRef

TENANT = ObjectRef("external-secrets.io/v1", "SecretStore", "team", "store")
CLUSTER = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "store")
OPEN = ProcessIdentityPolicy.parse("namespaced")


def use(policy: ProcessIdentityPolicy, holder: ObjectRef) -> None:
    ProcessIdentity(policy, holder).use("AWS role", field="/auth", instead="set auth.secretRef")


def prove(hosts: tuple[str, ...], url: str, vendor: tuple[str, ...] = ()) -> None:
    policy = ProcessIdentityPolicy.parse("cluster", hosts)
    ProcessIdentity(policy, CLUSTER).prove("AWS role", URL(url), field="/server", vendor=vendor)


def test_a_namespaced_store_may_not_use_the_identity_of_the_process_by_default() -> None:
    with pytest.raises(ProviderError) as refused:
        use(STRICT, TENANT)

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert refused.value.message == (
        "/auth: this SecretStore would use the AWS role of the provider itself, which serves cluster-scoped objects"
        " only; set auth.secretRef, or let the administrator start the provider with --ambient-identity=namespaced"
    )


@pytest.mark.parametrize(
    ("policy", "holder"),
    [
        pytest.param(STRICT, CLUSTER, id="a cluster-scoped store may use it"),
        pytest.param(OPEN, TENANT, id="a namespaced store may use it if the administrator says so"),
    ],
)
def test_the_identity_of_the_process_is_used(policy: ProcessIdentityPolicy, holder: ObjectRef) -> None:
    use(policy, holder)


@pytest.mark.parametrize(
    ("hosts", "url", "vendor"),
    [
        pytest.param(("vault.example.com",), "https://vault.example.com:8200/v1", (), id="a listed host, any port"),
        pytest.param(("Vault.Example.com.",), "https://vault.example.com", (), id="another spelling in the list"),
        pytest.param(("vault.example.com",), "https://VAULT.example.com.", (), id="another spelling in the spec"),
        pytest.param((".example.com",), "https://a.b.example.com", (), id="a host below a listed domain"),
        pytest.param((), "https://x.azurecr.io", (".azurecr.io",), id="a host of the vendor"),
        pytest.param(("http://127.0.0.1",), "http://127.0.0.1:8200", (), id="a host listed without TLS"),
    ],
)
def test_proofs_go_to_hosts_of_the_vendor_and_of_the_administrator(
    hosts: tuple[str, ...], url: str, vendor: tuple[str, ...]
) -> None:
    prove(hosts, url, vendor)


@pytest.mark.parametrize(
    ("hosts", "url", "vendor"),
    [
        pytest.param((), "https://vault.example.com", (), id="no host is listed by default"),
        pytest.param(("vault.example.com",), "https://evil.test", (), id="another host"),
        pytest.param(("vault.example.com",), "https://vault.example.com.evil.test", (), id="a listed name as prefix"),
        pytest.param(("vault.example.com",), "https://notvault.example.com", (), id="a listed name as suffix"),
        pytest.param((".example.com",), "https://badexample.com", (), id="a domain that only ends alike"),
        pytest.param(
            (".example.com",), "https://example.com", (), id="the domain itself, if only hosts below it count"
        ),
        pytest.param(("vault.example.com",), "http://vault.example.com", (), id="a listed host without TLS"),
        pytest.param(
            ("http://a.example.com",), "https://a.example.com", (), id="a host listed without TLS only, with TLS"
        ),
        pytest.param((), "http://x.azurecr.io", (".azurecr.io",), id="a host of the vendor without TLS"),
        pytest.param(("vault.example.com",), "https://vault.example.com@evil.test/", (), id="a listed name as user"),
        pytest.param(("vault.example.com",), "vault.example.com", (), id="an address without a scheme"),
        pytest.param((), "", (), id="no address"),
    ],
)
def test_no_other_server_receives_a_proof(hosts: tuple[str, ...], url: str, vendor: tuple[str, ...]) -> None:
    with pytest.raises(ProviderError, match="--identity-host=") as refused:
        prove(hosts, url, vendor)

    assert refused.value.reason is ErrorReason.CONFIG_INVALID
    assert refused.value.message.startswith("/server: would send a proof of the AWS role of the provider itself")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.example.com",
        "https://a.example.com",
        "a.example.com/path",
        "a b",
        "user@host",
        "http://.a",
        "a..b",
        ".",
    ],
)
def test_an_entry_that_names_no_host_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(ProcessIdentityError, match="--identity-host"):
        ProcessIdentityPolicy.parse("cluster", (entry,))


def test_an_unknown_scope_is_refused_at_the_start() -> None:
    with pytest.raises(ProcessIdentityError, match="cluster or namespaced"):
        ProcessIdentityPolicy.parse("everyone")


def test_a_relative_file_is_refused_at_the_start() -> None:
    with pytest.raises(ProcessIdentityError, match="absolute path"):
        ProcessIdentityPolicy.parse("cluster", files=("token",))


def reading(path: Path, *, listed: bool = True, holder: ObjectRef = CLUSTER) -> ProcessIdentity:
    files = (str(path),) if listed else ()
    return ProcessIdentity(ProcessIdentityPolicy.parse(AmbientIdentity.CLUSTER, files=files), holder)


def test_a_listed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"text")

    assert reading(path).read_file(str(path), field="/file").reveal() == b"text"


def test_a_file_of_the_identity_itself_needs_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"text")

    found = reading(path, listed=False).read_file(str(path), field="/file", own=str(path))

    assert found.reveal() == b"text"


def test_a_namespaced_store_reads_no_file_even_if_it_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"text")

    with pytest.raises(ProviderError, match="--ambient-identity=namespaced"):
        reading(path, holder=TENANT).read_file(str(path), field="/file")


def test_a_file_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"text")

    for spelling in (str(path), f"{tmp_path}/./token", f"{tmp_path}/../{tmp_path.name}/token"):
        with pytest.raises(ProviderError, match="--identity-file"):
            reading(tmp_path / "other").read_file(spelling, field="/file")


def test_a_device_is_not_read() -> None:
    with pytest.raises(ProviderError, match="not a regular file"):
        reading(Path("/dev/zero")).read_file("/dev/zero", field="/file")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(ProviderError, match="not a regular file"):
        reading(path).read_file(str(path), field="/file")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * (MAX_FILE + 1))

    with pytest.raises(ProviderError, match=f"larger than {MAX_FILE}"):
        reading(path).read_file(str(path), field="/file")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing"

    with pytest.raises(ProviderError, match="cannot be read") as refused:
        reading(path).read_file(str(path), field="/file")

    assert refused.value.reason is ErrorReason.CREDENTIALS_NOT_FOUND
