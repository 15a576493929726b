"""Values, keys, tokens and messages of AWS appear in responses only."""

from __future__ import annotations

import json

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, StubResponse, refused, refused_xml
from eso_provider_aws.testing.sessions import context, read, token, with_keys, with_token
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import Context, MetadataPolicy, RemoteRef, Shape

PLANTED = "CANARY-7f3a"
REQUEST_ID = "id-of-the-request"


class Output:
    """Everything that callers receive, except values."""

    def __init__(self, provider: InMemory) -> None:
        self._provider = provider
        self.texts: list[str] = []

    async def call_all(self, call: Context) -> None:
        """Make every kind of read, and validate."""
        for refs in (
            [RemoteRef("app", property=path) for path in ("password.x", "absent", "")],
            [RemoteRef("app", version="stage"), RemoteRef("app", metadata_policy=MetadataPolicy.FETCH)],
            [RemoteRef("app"), RemoteRef("other"), RemoteRef("third")],
        ):
            try:
                responses = await read(self._provider, call, *refs)
            except ProviderError as failed:
                self._record(failed)
                continue
            for response in responses:
                if isinstance(response, ProviderError):
                    self._record(response)
        try:
            one = await self._provider.get_one(call, "app", shape=Shape.MAP, property="password")
            self.texts.append(str(one.outcome))
            self.texts.append(str(await self._provider.validate(call)))
        except ProviderError as failed:
            self._record(failed)

    def _record(self, error: ProviderError) -> None:
        self.texts.append(f"{error} {error!r} {error.message} {error.backend_code} {error.subject}")


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


async def test_no_value_no_key_and_nothing_that_aws_reports_gets_into_logs_metrics_or_errors(
    front: Front, provider: InMemory, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="eso_sdk")
    output = Output(provider)
    await read(provider, context(SecretsManager), "app")  # keeps the client open, whatever becomes of others
    value = {"ARN": "arn", "Name": "app", "SecretString": json.dumps({"password": PLANTED}), "VersionId": "1"}
    responses = [StubResponse(200, json.dumps(value).encode()), StubResponse(200, f"<html>{PLANTED}</html>".encode())]
    responses += [StubResponse(200, json.dumps({PLANTED: PLANTED}).encode())]
    responses += [refused(code, f"{PLANTED} {REQUEST_ID}") for code in CODES]
    responses += [refused_xml(code, PLANTED) for code in CODES]
    responses += [StubResponse(status, f"{PLANTED}".encode()) for status in (400, 403, 404, 429, 500, 503)]
    for number, response in enumerate(responses):
        front.respond("*", response)
        # Identities of their own each time: pauses after refusals would hide what comes next.
        keys = (f"AKIA{PLANTED}{number}", f"{PLANTED}-of-the-key")
        account = token(f"{PLANTED}-of-the-account", name=f"account-{number}")
        for call in (context(SecretsManager, keys), with_keys(keys, role="app"), with_token(account)):
            await output.call_all(call)

    assert len(output.texts) > 200
    shown = "\n".join([*output.texts, *capfd.readouterr(), caplog.text, provider.metrics.exposition().decode()])
    assert PLANTED not in shown
    assert REQUEST_ID not in shown
