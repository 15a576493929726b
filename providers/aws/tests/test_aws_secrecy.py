"""Values, keys, tokens and messages of AWS appear in answers only."""

from __future__ import annotations

import json

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, Said, refused
from eso_provider_aws.testing.logins import token, with_keys, with_token
from eso_provider_aws.testing.sessions import context, read
from eso_provider_aws.testing.sts import refused_xml
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import Context, MetadataPolicy, RemoteRef, Shape

PLANTED = "CANARY-7f3a"
REQUEST_ID = "id-of-the-request"


class Heard:
    """Everything that callers receive, except values."""

    def __init__(self, provider: InMemory) -> None:
        self._provider = provider
        self.said: list[str] = []

    async def ask(self, call: Context) -> None:
        """Read in every way, and validate."""
        for refs in (
            [RemoteRef("app", property=path) for path in ("password.x", "absent", "")],
            [RemoteRef("app", version="stage"), RemoteRef("app", metadata_policy=MetadataPolicy.FETCH)],
            [RemoteRef("app"), RemoteRef("other"), RemoteRef("third")],
        ):
            try:
                answers = await read(self._provider, call, *refs)
            except ProviderError as failed:
                self._hear(failed)
                continue
            for answer in answers:
                if isinstance(answer, ProviderError):
                    self._hear(answer)
        try:
            one = await self._provider.get_one(call, "app", shape=Shape.MAP, property="password")
            self.said.append(str(one.outcome))
            self.said.append(str(await self._provider.validate(call)))
        except ProviderError as failed:
            self._hear(failed)

    def _hear(self, error: ProviderError) -> None:
        self.said.append(f"{error} {error!r} {error.message} {error.backend_code} {error.subject}")


CODES = (
    "ResourceNotFoundException",
    "AccessDeniedException",
    "UnrecognizedClientException",
    "ThrottlingException",
    "InternalServiceError",
    "InvalidParameterException",
    "ValidationException",
    "LimitExceededException",
    f"Odd{PLANTED}",
)


async def test_no_value_no_key_and_nothing_that_aws_says_gets_into_logs_metrics_or_errors(
    front: Front, provider: InMemory, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="eso_sdk")
    heard = Heard(provider)
    await read(provider, context(SecretsManager), "app")  # keeps the client open, whatever becomes of others
    value = {"ARN": "arn", "Name": "app", "SecretString": json.dumps({"password": PLANTED}), "VersionId": "1"}
    answers = [Said(200, json.dumps(value).encode()), Said(200, f"<html>{PLANTED}</html>".encode())]
    answers += [Said(200, json.dumps({PLANTED: PLANTED}).encode())]
    answers += [refused(code, f"{PLANTED} {REQUEST_ID}") for code in CODES]
    answers += [refused_xml(code, PLANTED) for code in CODES]
    answers += [Said(status, f"{PLANTED}".encode()) for status in (400, 403, 404, 429, 500, 503)]
    for number, answer in enumerate(answers):
        front.answer("*", answer)
        # Identities of their own each time: pauses after refusals would hide what comes next.
        keys = (f"AKIA{PLANTED}{number}", f"{PLANTED}-of-the-key")
        account = token(f"{PLANTED}-of-the-account", name=f"account-{number}")
        for call in (context(SecretsManager, keys), with_keys(keys, role="app"), with_token(account)):
            await heard.ask(call)

    assert len(heard.said) > 200
    seen = "\n".join([*heard.said, *capfd.readouterr(), caplog.text, provider.metrics.exposition().decode()])
    assert PLANTED not in seen
    assert REQUEST_ID not in seen
