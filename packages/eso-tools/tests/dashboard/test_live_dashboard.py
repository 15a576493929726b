"""The dashboard beside a running operator: what it shows, what it escapes, what it refuses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.operators import Bench
from eso_testkit.tools.dashboards import CANARY, HOSTILE, Site, dashboard_running

pytestmark = pytest.mark.live

STORES = SECRET_STORE.crd_name


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    async with dashboard_running(bench) as running:
        yield running


async def test_pages_show_problems_stores_and_the_explanation_of_an_object_and_no_value(site: Site) -> None:
    home = f"?namespace={site.bench.namespace}"
    problems = await site.until_shown(f"/{home}", "AccessDenied")
    objects = await site.get(f"/objects{home}&q=secretsynced")
    stores = await site.get("/stores")
    good, bad = await site.get(site.object_path("db")), await site.get(site.object_path("hostile"))
    store = await site.get(site.object_path("vault", STORES))

    assert "<h1>1 problem</h1>" in problems.text
    assert ">db</b>" in objects.text
    assert "hostile" not in objects.text
    assert "provider-scripted" in stores.text
    assert 'data-name="calls"' in stores.text
    assert "are not known" not in stores.text
    assert re.search(r"as of <time datetime=.....-..-..T..:..:..Z", stores.text)
    assert "No operator works" not in problems.text
    for step in ("Store", "Entries", "Template", "Target"):
        assert f"<h3>{step}</h3>" in good.text
    assert "The cause" not in good.text
    assert "last refresh in the status" in good.text
    assert "The cause" in bad.text
    assert "UpdateFailed" in bad.text
    assert "Used by 2 objects" in store.text
    assert CANARY not in "".join(page.text for page in (problems, objects, stores, good, bad, store))


async def test_hostile_texts_are_escaped_on_every_page(site: Site) -> None:
    paths = ["/", "/objects", "/stores", site.object_path("hostile"), site.object_path("vault", STORES)]
    pages = [await site.get(path) for path in paths]
    reflected = await site.get("/objects", params={"q": HOSTILE, "state": HOSTILE, "kind": HOSTILE, "page": HOSTILE})

    assert "&lt;script&gt;window.hacked" in (await site.until_shown("/", "refused")).text
    assert "&lt;script&gt;window.hacked" in pages[3].text
    assert "&lt;script&gt;window.hacked" in reflected.text
    for page in (*pages, reflected):
        assert page.status == 200
        assert "<script>window" not in page.text
        assert "<img src=x" not in page.text
        assert page.text.count("<script") == 1


async def test_every_answer_forbids_foreign_content_frames_and_copies(site: Site) -> None:
    paths = ("/", "/nowhere", "/static/style.css", site.object_path("db"))

    for page in [await site.get(path) for path in paths]:
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["x-content-type-options"] == "nosniff"
    assert (await site.get("/")).headers["cache-control"] == "no-store"


async def test_nothing_can_be_written(site: Site) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        response = await site.get(site.object_path("db"), method=method)
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD"), method
    assert (await site.get("/", method="HEAD")).status == 200
    assert (await site.get("/login", method="POST", data={"token": "x"})).status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost", 200, id="localhost"),
        pytest.param("127.0.0.1:9", 200, id="another port, as a forwarded one"),
        pytest.param("[::1]:80", 200, id="the other loopback address"),
        pytest.param("evil.example", 421, id="a name that was rebound"),
        pytest.param("127.0.0.1.evil.example", 421, id="a name that begins like the address"),
        pytest.param("localhost.evil.example:80", 421, id="a name that begins like localhost"),
    ],
)
async def test_a_page_is_served_under_names_of_this_machine_only(site: Site, host: str, status: int) -> None:
    assert (await site.get("/", headers={"Host": host})).status == status


async def test_an_unchanged_fragment_is_not_sent_again(site: Site) -> None:
    path = "/objects?q=nothing-matches"
    fragment = {"X-Fragment": "main"}
    first = await site.get(path, headers=fragment)
    again = await site.get(path, headers={**fragment, "If-None-Match": first.headers["etag"]})
    whole = await site.get(path, headers={"If-None-Match": first.headers["etag"]})

    assert (first.status, "<html" in first.text) == (200, False)
    assert (again.status, again.text) == (304, "")
    assert (whole.status, "<html" in whole.text) == (200, True)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/objects/secrets/default/x", id="a kind that is not ours"),
        pytest.param("/objects/externalsecrets.external-secrets.io/-/x", id="no namespace"),
        pytest.param("/objects/clustersecretstores.external-secrets.io/team/x", id="a namespace too many"),
        pytest.param("/objects/externalsecrets.external-secrets.io/default/absent", id="no such object"),
        pytest.param("/static/../pages.py", id="a file that is not for browsers"),
        pytest.param("/static/..%2fpages.py", id="the same, encoded"),
    ],
)
async def test_a_path_without_a_page_answers_404(site: Site, path: str) -> None:
    assert (await site.get(path)).status == 404
