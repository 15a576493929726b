"""Decoding of messages: EventBridge events of Secrets Manager and Parameter Store, bare or wrapped by SNS. Pure.

| event | type of the change |
|---|---|
| `AWS API Call via CloudTrail`, `AWS Service Event via CloudTrail` of aws.secretsmanager | `detail.eventName` decides |
| `Parameter Store Change`, `Parameter Store Policy Action` of aws.ssm | `detail.operation`, `detail.policy-type` |

Denied calls changed nothing. Any other event is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eso_provider_aws.endpoints import PARAMETER_STORE, SECRETS_MANAGER

_SECRET_CHANGES: Final = frozenset(
    {
        "CreateSecret",
        "PutSecretValue",
        "UpdateSecret",
        "UpdateSecretVersionStage",
        "RestoreSecret",
        "RotationSucceeded",
        "TagResource",
        "UntagResource",
        "DeleteSecret",
    }
)
_VERSIONED: Final = frozenset({"CreateSecret", "PutSecretValue", "UpdateSecret"})
_CALLS: Final = frozenset({"AWS API Call via CloudTrail", "AWS Service Event via CloudTrail"})
_SUFFIX: Final = re.compile(r"-[A-Za-z0-9]{6}")
_SUFFIX_LENGTH: Final = 7


class NotAnEventError(ValueError):
    """A message that is not an EventBridge event."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a secret or parameter. One of `names` is the true name: an ARN does not show where a name ends."""

    service: str
    region: str
    names: frozenset[str]
    deleted: bool = False
    version: str = ""
    stages: frozenset[str] = frozenset()
    """The stages that the new version has; empty if it may concern every version."""
    at: datetime | None = None
    event_id: str = ""
    """The id of the event, the same in every copy."""


def change_in(body: str) -> Change | None:
    """Return the change in a message; None if it concerns nothing that can be watched."""
    event = _object(body)
    if event.get("Type") == "Notification" and isinstance(event.get("Message"), str):
        event = _object(event["Message"])
    if not isinstance(event.get("source"), str) or not isinstance(event.get("detail"), dict):
        raise NotAnEventError
    match event["source"], event.get("detail-type"):
        case "aws.secretsmanager", str(kind) if kind in _CALLS:
            return _of_secret(event, event["detail"])
        case "aws.ssm", "Parameter Store Change":
            return _of_parameter(event, event["detail"])
        case "aws.ssm", "Parameter Store Policy Action" if event["detail"].get("policy-type") == "Expiration":
            name = _text(event["detail"], "parameter-name")
            return _change(event, PARAMETER_STORE, parameter_names(name), deleted=True)
    return None


def secret_names(secret_id: str) -> frozenset[str]:
    """Return the possible names of a secret: an ARN may end with six random characters after the name."""
    if not secret_id.startswith("arn:"):
        return frozenset({secret_id})
    name = secret_id.partition(":secret:")[2]
    whole = _SUFFIX.fullmatch(name[-_SUFFIX_LENGTH:])
    return frozenset({name, name[:-_SUFFIX_LENGTH]} if whole else {name})


def parameter_names(name: str) -> frozenset[str]:
    """Return the possible names of a parameter: an ARN does not show whether the name begins with a slash."""
    if not name.startswith("arn:"):
        return frozenset({name})
    below = name.partition(":parameter/")[2]
    return frozenset({below, f"/{below}"})


def _of_secret(event: dict[str, Any], detail: dict[str, Any]) -> Change | None:
    call = _text(detail, "eventName")
    if call not in _SECRET_CHANGES or detail.get("errorCode"):
        return None
    request, response = _part(detail, "requestParameters"), _part(detail, "responseElements")
    ids = [_text(part, key) for part in (request, response) for key in ("secretId", "name", "arn", "aRN", "ARN")]
    ids += [_text(_part(detail, "additionalEventData"), key) for key in ("SecretId", "secretId", "secretARN")]
    names = frozenset[str]().union(*(secret_names(each) for each in ids if each))
    version = _text(request, "clientRequestToken") if call in _VERSIONED else ""
    stages = request.get("versionStages") if call == "PutSecretValue" else None
    return _change(
        event,
        SECRETS_MANAGER,
        names,
        deleted=call == "DeleteSecret",
        version=version,
        stages=frozenset(str(stage) for stage in stages) if isinstance(stages, list) else frozenset(),
    )


def _of_parameter(event: dict[str, Any], detail: dict[str, Any]) -> Change | None:
    names = parameter_names(_text(detail, "name"))
    return _change(event, PARAMETER_STORE, names, deleted=detail.get("operation") == "Delete")


def _change(event: dict[str, Any], service: str, names: frozenset[str], **more: Any) -> Change | None:
    names -= {""}
    if not names:
        return None
    return Change(
        service, _text(event, "region"), names, at=_time(_text(event, "time")), event_id=_text(event, "id"), **more
    )


def _object(raw: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        raise NotAnEventError from None
    if not isinstance(found, dict):
        raise NotAnEventError
    return found


def _part(among: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = among.get(key)
    return found if isinstance(found, dict) else {}


def _text(among: Mapping[str, Any], key: str) -> str:
    found = among.get(key)
    return found if isinstance(found, str) else ""


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
