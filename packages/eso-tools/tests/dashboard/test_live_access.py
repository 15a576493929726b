"""With authentication, each viewer sees what the API server would list for them, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.operators import Bench
from eso_testkit.tools.dashboards import Site, dashboard_running
from eso_tools.dashboard.pages import COOKIE
from kubebase.testing.servers import ApiServer

pytestmark = pytest.mark.live

RBAC = "/apis/rbac.authorization.k8s.io/v1"
READ_SECRETS = {"apiGroups": ["external-secrets.io"], "resources": ["externalsecrets"], "verbs": ["get", "list"]}


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    async with dashboard_running(bench, authenticated=True) as running:
        yield running


async def token_of(bench: Bench, account: str, *rules: dict[str, Any]) -> str:
    """Create a service account with these rights in the namespace, and return a token of it."""
    home = f"/api/v1/namespaces/{bench.namespace}/serviceaccounts"
    await bench.api.post(home, {"metadata": {"name": account}})
    if rules:
        inside = f"{RBAC}/namespaces/{bench.namespace}"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": bench.namespace}
        await bench.api.post(f"{inside}/roles", {"metadata": {"name": account}, "rules": list(rules)})
        bound = {"metadata": {"name": account}, "subjects": [subject], "roleRef": reference}
        assert (await bench.api.post(f"{inside}/rolebindings", bound)).status == 201
    issued = await bench.api.post(f"{home}/{account}/token", {"spec": {}})
    return str(issued.body["status"]["token"])


def bearing(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


async def test_whoever_has_no_good_token_is_asked_to_sign_in_and_sees_nothing(site: Site) -> None:
    anonymous: dict[str, Any] = {}
    for options in (anonymous, bearing("nonsense")):
        for path in ("/", "/objects", "/stores", site.object_path("db")):
            page = await site.get(path, **options)
            assert (page.status, "Sign in" in page.text) == (401, True)
            assert "vault" not in page.text


async def test_a_viewer_of_one_kind_in_one_namespace_sees_these_objects_only(site: Site) -> None:
    token = bearing(await token_of(site.bench, "reader", READ_SECRETS))
    shown = await site.until_shown("/objects", ">hostile</b>", **token)
    problems = await site.get("/", **token)
    own = await site.get(site.object_path("hostile"), **token)
    store = await site.get(site.object_path("vault", SECRET_STORE.crd_name), **token)

    assert "2 objects" in shown.text
    assert f"{SECRET_STORE.crd_name}</code>: you may not list it" in shown.text
    assert "<b>vault</b>" not in shown.text + problems.text
    assert own.status == 200
    assert "you may not read" in own.text.lower()
    assert "You may not read events here." in own.text
    assert (store.status, "Your account may not read this object." in store.text) == (403, True)


async def test_an_account_without_rights_sees_no_object(site: Site) -> None:
    token = bearing(await token_of(site.bench, "stranger"))
    page = await site.get("/objects", **token)

    assert (page.status, "0 objects" in page.text) == (200, True)
    assert (await site.get(site.object_path("db"), **token)).status == 403


async def test_an_administrator_sees_everything(site: Site, api_server: ApiServer) -> None:
    page = await site.until_shown(
        f"/objects?namespace={site.bench.namespace}", ">vault</b>", **bearing(api_server.token)
    )

    assert ">db</b>" in page.text
    assert (await site.get(site.object_path("db"), **bearing(api_server.token))).status == 200


async def test_signing_in_keeps_the_token_in_a_cookie_that_scripts_and_other_sites_cannot_use(
    site: Site, api_server: ApiServer
) -> None:
    refused = await site.get("/login", method="POST", data={"token": "nonsense"})
    long = await site.get("/login", method="POST", data={"token": "x" * 5000})
    done = await site.get("/login", method="POST", data={"token": f" {api_server.token}\n"})
    cookie = SimpleCookie(done.headers["set-cookie"])[COOKIE]
    page = await site.get("/", headers={"Cookie": f"{COOKIE}={cookie.value}"})
    left = await site.get("/logout", method="POST")

    assert (refused.status, "does not accept this token" in refused.text) == (401, True)
    assert (long.status, "too long for a cookie" in long.text) == (401, True)
    assert (done.status, done.headers["location"], page.status) == (303, "/", 200)
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["path"]) == (True, True, "Strict", "/")
    assert cookie["max-age"] == ""
    assert api_server.token not in page.text
    assert "Max-Age=0" in left.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="another origin"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="a form of another site"),
        pytest.param({"Origin": "null"}, id="an origin that is hidden"),
    ],
)
async def test_another_site_can_sign_no_user_in_or_out(
    site: Site, api_server: ApiServer, headers: dict[str, str]
) -> None:
    response = await site.get("/login", method="POST", data={"token": api_server.token}, headers=headers)

    assert (response.status, "set-cookie" in response.headers) == (403, False)
    assert (await site.get("/logout", method="POST", headers=headers)).status == 403
