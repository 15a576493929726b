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

from eso_operator.certificates.bundle import Identity, Lifetimes, Phase
from eso_operator.certificates.notary import NotaryError, ProcessNotary
from eso_operator.certificates.review import Question, Review
from eso_operator.certificates.reviewing import review
from eso_operator.certificates.secrets import CLIENT, ISSUER, SERVER

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIFETIMES = Lifetimes()


@pytest.fixture
async def notary() -> AsyncIterator[ProcessNotary]:
    made = ProcessNotary()
    yield made
    for worker in made._idle:
        worker.cancel_end()
        worker.end()


def children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text(encoding="ascii").split()}


def about(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")


async def settled(notary: ProcessNotary, identity: Identity) -> tuple[Question, list[Review]]:
    """Ask until nothing is left to do; return the last question and all answers."""
    question, answers = Question({}, NOW, LIFETIMES, identity), list[Review]()
    while not answers or answers[-1].steps:
        answers.append(await notary.review(question))
        question = Question({**question.stored, **answers[-1].changed}, NOW, LIFETIMES, identity)
    return question, answers


async def test_a_process_issues_certificates_that_a_review_in_this_process_finds_in_order(
    notary: ProcessNotary, identity: Identity
) -> None:
    question, answers = await settled(notary, identity)

    assert [tuple(answer.changed) for answer in answers] == [(ISSUER,), (SERVER, CLIENT), ()]
    assert review(question) == answers[-1]
    assert (answers[-1].phase, answers[-1].expires_at) == (Phase.STEADY, NOW + LIFETIMES.leaf)


async def test_a_changed_certificate_is_found_and_replaced(notary: ProcessNotary, identity: Identity) -> None:
    question, _ = await settled(notary, identity)
    keys = {part: dict(content.data) for part, content in question.stored.items()}
    swapped = replace_data(question, SERVER, {**keys[SERVER], "tls.key": keys[CLIENT]["tls.key"]})

    answer = await notary.review(swapped)

    assert answer.steps == (("IssueLeaf", "KeyMismatch"),)
    assert tuple(answer.changed) == (SERVER,)


def replace_data(question: Question, part: str, data: dict[str, bytes]) -> Question:
    content = type(question.stored[part])(data, question.stored[part].written_at)
    return Question({**question.stored, part: content}, question.now, question.lifetimes, question.identity)


async def test_a_review_without_steps_holds_until_it_is_due(notary: ProcessNotary, identity: Identity) -> None:
    question, answers = await settled(notary, identity)
    due = answers[-1].due

    def steps_at(now: datetime) -> tuple[tuple[str, str], ...]:
        return review(Question(question.stored, now, LIFETIMES, identity)).steps

    assert due == NOW + LIFETIMES.settle
    assert steps_at(due - timedelta(seconds=1)) == ()


async def test_questions_that_follow_each_other_use_one_process(notary: ProcessNotary, identity: Identity) -> None:
    before = children()

    await settled(notary, identity)

    assert len(children() - before) == 1


async def test_a_process_inherits_no_credentials_and_its_command_shows_no_key(
    notary: ProcessNotary, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_TOKEN", "CANARY-in-the-environment")
    before = children()

    await settled(notary, identity)

    (pid,) = children() - before
    shown = about(pid, "environ") + about(pid, "cmdline")
    assert "CANARY" not in shown
    assert "PRIVATE KEY" not in shown
    assert "Max core file size        0 " in about(pid, "limits")
    assert about(pid, "oom_score_adj").strip() == "1000"


async def test_an_error_is_reported_by_its_type_only(notary: ProcessNotary, identity: Identity) -> None:
    question, _ = await settled(notary, identity)
    wrong = replace(identity, server=replace(identity.server, addresses=("CANARY",)))

    with pytest.raises(NotaryError, match="ValueError") as caught:
        await notary.review(Question(question.stored, NOW, LIFETIMES, wrong))

    assert "CANARY" not in str(caught.value)
    assert (await notary.review(question)).steps == ()


async def test_a_process_that_was_killed_is_reported_and_replaced(notary: ProcessNotary, identity: Identity) -> None:
    before = children()
    question, _ = await settled(notary, identity)
    (pid,) = children() - before
    os.kill(pid, 9)

    with pytest.raises(NotaryError, match="ended"):
        await notary.review(question)

    assert (await notary.review(question)).steps == ()


_ISSUE = """
import asyncio, sys
from datetime import UTC, datetime
import eso_operator.main
from eso_operator.certificates.bundle import Lifetimes
from eso_operator.certificates.notary import ProcessNotary
from eso_operator.certificates.review import Question
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.stores.resolved import ServiceKey

async def issue():
    identity = identity_of(ServiceKey("team", "provider"), IssuerSettings("eso"))
    return await ProcessNotary().review(Question({}, datetime.now(UTC), Lifetimes(), identity))

print(asyncio.run(issue()).steps, "cryptography" in sys.modules)
"""


def test_an_operator_that_issues_certificates_does_not_load_cryptography() -> None:
    told = subprocess.run([sys.executable, "-c", _ISSUE], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.split("\n")[0] == "(('FoundAuthority', ''),) False"
