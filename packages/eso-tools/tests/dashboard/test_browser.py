"""The dashboard in a real browser: every view on a desktop, on a phone and in the dark, by keyboard, and live.

Screenshots go to the folder that ESO_SCREENSHOTS names, for people to look at.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.operators import Bench
from eso_testkit.tools.dashboards import CANARY, Site, dashboard_running
from eso_tools.dashboard.pages import COOKIE
from kubebase.testing.servers import ApiServer

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SECONDS = 60.0

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver: `make browser`"),
]

SCREENS = {"desktop": (1280, 900, "light"), "phone": (390, 844, "light"), "dark": (1280, 900, "dark")}
Browser = webdriver.Chrome


@contextmanager
def browser(screen: str = "desktop") -> Iterator[Browser]:
    width, height, scheme = SCREENS[screen]
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    flags = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run")
    for flag in (*flags, f"--window-size={width},{height}"):
        options.add_argument(flag)
    if screen == "phone":
        metrics = {"width": width, "height": height, "pixelRatio": 2.0}
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_page_load_timeout(SECONDS)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        yield driver
    finally:
        driver.quit()


def until(driver: Browser, holds: Callable[[Browser], Any]) -> Any:
    return WebDriverWait(driver, SECONDS).until(holds)


def keep(driver: Browser, name: str) -> None:
    if folder := os.environ.get("ESO_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    async with dashboard_running(bench) as running:
        yield running


@pytest.mark.parametrize("screen", SCREENS)
async def test_every_view_fits_its_screen_and_runs_no_foreign_script(site: Site, screen: str) -> None:
    views = {
        "problems": "/",
        "stores": "/stores",
        "objects": "/objects",
        "search": "/objects?q=hostile",
        "failed": site.object_path("hostile"),
        "good": site.object_path("db"),
        "store": site.object_path("vault", SECRET_STORE.crd_name),
        "missing": site.object_path("absent"),
    }

    def visit() -> None:
        with browser(screen) as driver:
            for name, path in views.items():
                driver.get(f"{site.url}{path}")
                keep(driver, f"{name}-{screen}")
                wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
                assert not driver.execute_script(wider), f"{name} scrolls sideways"
                assert driver.execute_script("return window.hacked") is None
                assert driver.find_element(By.TAG_NAME, "h1").text
                assert CANARY not in driver.page_source
            logged: list[dict[str, str]] = driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium's
            complaints = [each["message"] for each in logged if "404" not in each["message"]]
            assert complaints == []

    await asyncio.to_thread(visit)


async def test_colours_follow_the_scheme_of_the_system(site: Site) -> None:
    def brightness() -> list[int]:
        found = []
        for screen in ("desktop", "dark"):
            with browser(screen) as driver:
                driver.get(site.url)
                colour = driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
                found.append(sum(int(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]))
        return found

    light, dark = await asyncio.to_thread(brightness)

    assert light > 700
    assert dark < 120


async def test_a_keyboard_reaches_everything_and_a_change_appears_by_itself(site: Site) -> None:
    path = f"{site.url}/?namespace={site.bench.namespace}"

    def look_around(driver: Browser) -> None:
        driver.get(path)
        body = driver.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        assert driver.switch_to.active_element.text == "Skip to the content"
        driver.switch_to.active_element.send_keys(Keys.ENTER)
        assert driver.switch_to.active_element.get_attribute("id") == "main"
        driver.switch_to.active_element.send_keys("/")
        assert driver.switch_to.active_element.get_attribute("id") == "search"
        driver.switch_to.active_element.send_keys("hostile", Keys.ENTER)
        until(driver, lambda page: "hostile" in page.title or "q=hostile" in page.current_url)
        until(driver, lambda page: page.find_elements(By.CSS_SELECTOR, "tbody th a"))
        driver.execute_script("document.querySelector('tbody th a').focus()")
        driver.switch_to.active_element.send_keys(Keys.ENTER)
        until(driver, lambda page: "Data flow" in page.page_source)
        driver.get(path)
        driver.execute_script("document.querySelector('.cause h2 a').focus()")

    def follow(driver: Browser) -> None:
        # Read by script in one step: an update may replace an element between finding and reading it.
        until(
            driver, lambda page: page.execute_script("return document.querySelector('h1').textContent") == "2 problems"
        )
        focused = driver.execute_script("return document.activeElement.href || ''")
        assert focused.endswith("/hostile"), "the update has moved the focus"
        assert driver.title == "2 problems · External Secrets"

    with browser() as driver:
        await asyncio.to_thread(look_around, driver)
        await site.secret("lost", secretStoreRef={"name": "no-such-store"})
        await site.bench.ready(EXTERNAL_SECRET.resource(), "lost", lambda ready: ready.status == "False")
        await asyncio.to_thread(follow, driver)


async def test_a_page_whose_dashboard_has_stopped_says_so_on_top_and_in_its_title(bench: Bench) -> None:
    grey = "return getComputedStyle(document.querySelector('main > .inner')).filter"

    def open_page(driver: Browser, url: str) -> tuple[str, Any]:
        driver.get(url)
        return driver.title, driver.execute_script(grey)

    def wait_for_the_notice(driver: Browser) -> tuple[str, Any]:
        until(driver, lambda page: page.title.startswith("Not current · "))
        keep(driver, "stopped-desktop")
        return driver.find_element(By.ID, "notice").text, driver.execute_script(grey)

    with browser() as driver:
        async with dashboard_running(bench) as site:
            before = await asyncio.to_thread(open_page, driver, f"{site.url}/?namespace={bench.namespace}")
        notice, filtered = await asyncio.to_thread(wait_for_the_notice, driver)

    assert before == ("1 problem · External Secrets", "none")
    assert notice.startswith("The dashboard does not answer. This page shows the state of ")
    assert filtered == "grayscale(1)"


async def test_signing_in_and_out_with_a_form(bench: Bench, api_server: ApiServer) -> None:
    def sign_in(url: str) -> dict[str, Any]:
        with browser("phone") as driver:
            driver.get(url)
            keep(driver, "login-phone")
            driver.find_element(By.ID, "token").send_keys("nonsense", Keys.ENTER)
            until(driver, lambda page: page.find_elements(By.CSS_SELECTOR, "[role=alert]"))
            driver.find_element(By.ID, "token").send_keys(api_server.token, Keys.ENTER)
            until(driver, lambda page: page.find_elements(By.CLASS_NAME, "leave"))
            cookie = driver.get_cookie(COOKIE) or {}
            assert driver.execute_script("return document.cookie + localStorage.length") == "0"
            driver.find_element(By.CSS_SELECTOR, ".leave button").click()
            until(driver, lambda page: page.find_elements(By.ID, "token"))
            assert driver.get_cookie(COOKIE) is None
            return dict(cookie)

    async with dashboard_running(bench, authenticated=True) as site:
        cookie = await asyncio.to_thread(sign_in, site.url)

    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert "expiry" not in cookie
