"""A kubeconfig from an untrusted author is used only if it is self-contained."""

import pytest
import yaml

from kubebase.clock import SystemClock
from kubebase.testing.servers import kubeconfig_text
from kuberun.config import connection, parse_self_contained
from kuberun.errors import ConfigError

TEXT = kubeconfig_text("https://10.0.0.1:6443", b"authority", "PLANTED-token")


async def test_a_self_contained_kubeconfig_is_used() -> None:
    made = connection(parse_self_contained(TEXT.encode(), "of a test"), "", SystemClock())

    assert (made.server, made.tls.ca) == ("https://10.0.0.1:6443", b"authority")
    assert (await made.credentials.current()).authorization == "Bearer PLANTED-token"


@pytest.mark.parametrize(
    ("entry", "field", "value"),
    [
        pytest.param("user", "exec", {"command": "id", "apiVersion": "v1"}, id="a program"),
        pytest.param("user", "tokenFile", "/etc/passwd", id="a file with a token"),
        pytest.param("user", "client-certificate", "/etc/passwd", id="a file with a certificate"),
        pytest.param("user", "client-key", "/etc/passwd", id="a file with a key"),
        pytest.param("user", "auth-provider", {"name": "x"}, id="an auth provider"),
        pytest.param("cluster", "certificate-authority", "/etc/passwd", id="a file with authorities"),
    ],
)
def test_a_kubeconfig_that_names_files_or_commands_is_refused(entry: str, field: str, value: object) -> None:
    document = yaml.safe_load(TEXT)
    document[f"{entry}s"].append({"name": "unused", entry: {field: value}})

    with pytest.raises(ConfigError, match="is not allowed here") as refused:
        parse_self_contained(yaml.safe_dump(document).encode(), "of a test")

    assert f"{entry} 'unused'" in str(refused.value)
    assert "PLANTED" not in str(refused.value)
