"""Writes one new version of an existing secret, with the format and the id of the version."""

from __future__ import annotations

import uuid
from typing import Any, Final

from eso_provider_aws.api import Api
from eso_provider_aws.secrets.metadata import Settings
from eso_provider_aws.secrets.reading import about
from eso_provider_aws.secrets.standing import Standing
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError

_TOKENS: Final = uuid.UUID("5f1c9c0e-6d0b-4c39-9f5b-0c6a3b1f6a5e")

Form = dict[str, Any]
"""A value as parameters of a call: `SecretString` or `SecretBinary`."""


class ConflictError(Exception):
    """Another writer changed the secret between our read and our write."""


async def put_version(api: Api, secret_id: str, standing: Standing, form: Form, call_key: str) -> str:
    """Write a new version; returns its id."""
    token = token_of(call_key, secret_id, standing.version)
    try:
        made = await api.call(
            "PutSecretValue", about=about(secret_id), SecretId=standing.arn, ClientRequestToken=token, **form
        )
    except ProviderError as failed:
        if failed.reason is ErrorReason.ALREADY_EXISTS:  # a version of that id, with another value
            raise ConflictError from None
        raise
    return str(made.get("VersionId", ""))


def token_of(call_key: str, secret_id: str, version: str) -> str:
    """Return the id of the new version.

    Repetitions of one push get the same id, so the service creates only one version.
    """
    return str(uuid.uuid5(_TOKENS, f"{call_key}\n{secret_id}\n{version}") if call_key else uuid.uuid4())


def form_of(value: bytes, standing: Standing, settings: Settings) -> Form:
    """Return the format of the value: that of the metadata, else the one that the secret has."""
    asked = settings.metadata.secret_push_format
    try:
        if asked == "string" or (asked is None and standing.secret is not None and standing.secret.is_text):
            return {"SecretString": value.decode()}
    except UnicodeDecodeError:
        if asked == "string":
            raise invalid_request(
                "the value is binary, and secretPushFormat is string; use binary, or encode the value first"
            ) from None
    return {"SecretBinary": value}


def is_stored(value: bytes, standing: Standing, settings: Settings) -> bool:
    """Tell whether the secret has this value, in the form that the metadata names."""
    if standing.secret is None:
        return False
    asked = settings.metadata.secret_push_format
    return value == standing.secret.value and (asked is None or standing.secret.is_text == (asked == "string"))


def check_original(api: Api, secret_id: str, standing: Standing) -> None:
    """Refuse to write a replica: the service takes changes in the region of the original only."""
    if standing.primary and standing.primary != api.region:
        replica = api.asked("PutSecretValue", about(secret_id))
        raise invalid_request(f"{replica} is a replica of a secret in {standing.primary}; use a store of that region")
