"""Reviews of certificates in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eso_operator.certificates.issuance import review
from eso_operator.certificates.secrets import CLIENT, ISSUER, SERVER
from eso_operator.certificates.state import Identity, Lifetimes, Phase
from eso_operator.certificates.worker import CertificateWorker, CertificateWorkerError, Review, ReviewRequest

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIFETIMES = Lifetimes()


@pytest.fixture
async def worker() -> AsyncIterator[CertificateWorker]:
    made = CertificateWorker()
    yield made
    for process in made._idle:
        process.cancel_end()
        process.end()


def children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text(encoding="ascii").split()}


def about(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")


async def review_all(worker: CertificateWorker, identity: Identity) -> tuple[ReviewRequest, list[Review]]:
    """Review until nothing is left to do; return the last request and all reviews."""
    request, reviews = ReviewRequest({}, NOW, LIFETIMES, identity), list[Review]()
    while not reviews or reviews[-1].steps:
        reviews.append(await worker.review(request))
        request = ReviewRequest({**request.stored, **reviews[-1].changed}, NOW, LIFETIMES, identity)
    return request, reviews


async def test_a_process_issues_certificates_that_a_review_in_this_process_finds_in_order(
    worker: CertificateWorker, identity: Identity
) -> None:
    request, reviews = await review_all(worker, identity)

    assert [tuple(result.changed) for result in reviews] == [(ISSUER,), (SERVER, CLIENT), ()]
    assert review(request) == reviews[-1]
    assert (reviews[-1].phase, reviews[-1].expires_at) == (Phase.STEADY, NOW + LIFETIMES.leaf)


async def test_a_changed_certificate_is_found_and_replaced(worker: CertificateWorker, identity: Identity) -> None:
    request, _ = await review_all(worker, identity)
    keys = {part: dict(content.data) for part, content in request.stored.items()}
    swapped = replace_data(request, SERVER, {**keys[SERVER], "tls.key": keys[CLIENT]["tls.key"]})

    result = await worker.review(swapped)

    assert result.steps == (("IssueLeaf", "KeyMismatch"),)
    assert tuple(result.changed) == (SERVER,)


def replace_data(request: ReviewRequest, part: str, data: dict[str, bytes]) -> ReviewRequest:
    content = type(request.stored[part])(data, request.stored[part].written_at)
    return ReviewRequest({**request.stored, part: content}, request.now, request.lifetimes, request.identity)


async def test_a_review_without_steps_holds_until_it_is_due(worker: CertificateWorker, identity: Identity) -> None:
    request, reviews = await review_all(worker, identity)
    due = reviews[-1].due

    def steps_at(now: datetime) -> tuple[tuple[str, str], ...]:
        return review(ReviewRequest(request.stored, now, LIFETIMES, identity)).steps

    assert due == NOW + LIFETIMES.settle
    assert steps_at(due - timedelta(seconds=1)) == ()


async def test_requests_that_follow_each_other_use_one_process(worker: CertificateWorker, identity: Identity) -> None:
    before = children()

    await review_all(worker, identity)

    assert len(children() - before) == 1


async def test_a_process_inherits_no_credentials_and_its_command_shows_no_key(
    worker: CertificateWorker, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_TOKEN", "CANARY-in-the-environment")
    before = children()

    await review_all(worker, identity)

    (pid,) = children() - before
    shown = about(pid, "environ") + about(pid, "cmdline")
    assert "CANARY" not in shown
    assert "PRIVATE KEY" not in shown
    assert "Max core file size        0 " in about(pid, "limits")
    assert about(pid, "oom_score_adj").strip() == "1000"


async def test_an_error_is_reported_by_its_type_only(worker: CertificateWorker, identity: Identity) -> None:
    request, _ = await review_all(worker, identity)
    wrong = replace(identity, server=replace(identity.server, addresses=("CANARY",)))

    with pytest.raises(CertificateWorkerError, match="ValueError") as caught:
        await worker.review(ReviewRequest(request.stored, NOW, LIFETIMES, wrong))

    assert "CANARY" not in str(caught.value)
    assert (await worker.review(request)).steps == ()


async def test_a_process_that_was_killed_is_reported_and_replaced(
    worker: CertificateWorker, identity: Identity
) -> None:
    before = children()
    request, _ = await review_all(worker, identity)
    (pid,) = children() - before
    os.kill(pid, 9)

    with pytest.raises(CertificateWorkerError, match="ended"):
        await worker.review(request)

    assert (await worker.review(request)).steps == ()


_ISSUE = """
import asyncio, sys
from datetime import UTC, datetime
import eso_operator.main
from eso_operator.certificates.state import Lifetimes
from eso_operator.certificates.worker import CertificateWorker
from eso_operator.certificates.worker import ReviewRequest
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.stores.resolved import ServiceKey

async def issue():
    identity = identity_of(ServiceKey("team", "provider"), IssuerSettings("eso"))
    return await CertificateWorker().review(ReviewRequest({}, datetime.now(UTC), Lifetimes(), identity))

print(asyncio.run(issue()).steps, "cryptography" in sys.modules)
"""


def test_an_operator_that_issues_certificates_does_not_load_cryptography() -> None:
    told = subprocess.run([sys.executable, "-c", _ISSUE], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.split("\n")[0] == "(('CreateAuthority', ''),) False"
