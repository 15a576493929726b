"""The whole product on 1Password: every manifest of the guide, deletions, and a condition that says what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_onepassword.testing.connect import ConnectServer
from eso_provider_onepassword.testing.core import TOKEN as ACCOUNT_TOKEN
from eso_provider_onepassword.testing.core import environment_with
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/providers/onepassword.md"
TEAM, TOKEN = "team-a", "only-an-example"
LOGIN = {"username": "anna", "password": "first"}


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with ConnectServer.started(tokens={TOKEN: None}) as running:
        running.vault(TEAM).put("app-db", LOGIN, tags=["production"])
        running.vault("shared").attach("certificate", {"tls.crt": b"certificate"})
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, manifests: Path, server: ConnectServer) -> Iterator[UpProcess]:
    """`eso up` with no other flag: the provider starts with the first store, and has the environment of `eso up`."""
    del server
    tokens = {ACCOUNT_TOKEN: {TEAM: {"app-db": LOGIN}}}
    variables = {"example-environment": {"DB_HOST": "db", "OTHER": "x"}}
    environment = environment_with(tmp_path_factory.mktemp("sdk"), tokens, variables)
    environment |= {"ESO_PROVIDER_ALLOW_ADDRESS": "loopback", "NO_PROXY": "127.0.0.1"}
    folder = tmp_path_factory.mktemp("up-onepassword")
    with up_running(folder, "--file", str(manifests), environment=environment) as running:
        yield running


def documents(server: ConnectServer) -> list[JsonObject]:
    """Return the manifests of the guide, with the address of the server and the token of the account."""
    text = GUIDE.read_text(encoding="utf-8").replace("http://onepassword-connect:8080", server.url)
    text = text.replace(f"ops_{TOKEN}", ACCOUNT_TOKEN)
    return [one for block in text.split("```yaml\n")[1:] for one in yaml.safe_load_all(block.partition("```")[0])]


async def test_every_manifest_of_the_guide_works(site: Any, server: ConnectServer) -> None:
    await site.namespace(TEAM)

    await site.apply(*documents(server))

    for store in ("onepassword", "onepassword-account"):
        await site.ready(SECRET_STORE.resource(), store, TEAM)
    whole = {"user": "anna", "password": "first", "tls.crt": "certificate"}
    await site.secret("database", TEAM, lambda text: text == whole)
    for name in ("all-fields", "of-account", "tagged"):
        await site.secret(name, TEAM, lambda text: text == LOGIN)
    await site.secret("direct", TEAM, lambda text: text == {"password": "first"})
    await site.secret("variables", TEAM, lambda text: text == {"DB_HOST": "db"})
    for push in ("generated", "whole"):
        await site.ready(PUSH_SECRET.resource(), push, TEAM)
    assert server.vault(TEAM).values("generated") == {"password": "example", "username": "app"}

    await site.delete(PUSH_SECRET.resource(), "generated", TEAM)

    async def gone() -> bool:
        return "generated" not in server.vault(TEAM).titles()

    await site.until(gone, "the pushed item is still there")


async def test_a_condition_names_the_missing_item_and_its_vaults(site: Any, server: ConnectServer) -> None:
    team = await site.namespace("team-missing")
    secret, store, external = (dict(one) for one in documents(server)[:3])
    external["spec"] = external["spec"] | {"data": [{"secretKey": "x", "remoteRef": {"key": "app-dv"}}]}
    for one in (secret, store, external):
        one["metadata"] = one["metadata"] | {"namespace": team}
    await site.apply(secret, store, external)

    async def look() -> str | None:
        found = await site.find(EXTERNAL_SECRET.resource(), "database", team) or {}
        messages = [one["message"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "False"]
        return next((message for message in messages if "no item" in message), None)

    message = await site.until(look, "no condition reports the missing item")
    assert '1Password has no item "app-dv" in vaults "team-a", "shared"' in message
    assert "app-db" in message
