"""STS for tests of logins: issues keys that expire by the clock of the test, and records the requests.

sts = Sts(clock)
front.respond("AssumeRole", sts)
...
assert sts.roles == ["arn:aws:iam::123456789012:role/app"]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from eso_provider_aws.testing.front import RecordedRequest, StubResponse
from kubebase.clock import Clock, rfc3339

ARN = "arn:aws:iam::123456789012:role/"


@dataclass(slots=True)
class Sts:
    """Grants every requested role."""

    clock: Clock
    life: float = 3600.0
    granted: dict[str, RecordedRequest] = field(default_factory=dict)
    """The granted keys, by key id."""

    def __call__(self, request: RecordedRequest) -> StubResponse:
        key_id = f"ASIA{len(self.granted):012}"
        self.granted[key_id] = request
        expiration = rfc3339(self.clock.now() + timedelta(seconds=self.life))
        return StubResponse(
            200, _GRANT.format(request.operation, key_id, expiration).encode(), {"Content-Type": "text/xml"}
        )

    @property
    def roles(self) -> list[str]:
        return [request.body["RoleArn"] for request in self.granted.values()]

    def chain(self, key_id: str) -> list[str]:
        """Return the roles behind a key, in the order of assumption."""
        if key_id not in self.granted:
            return [key_id]
        request = self.granted[key_id]
        return [*self.chain(request.key_id), request.body["RoleArn"].removeprefix(ARN)]

    def tags(self, key_id: str) -> dict[str, str]:
        """Return the session tags of a key."""
        body: dict[str, Any] = self.granted[key_id].body
        numbers = [name.split(".")[2] for name in body if name.startswith("Tags.member.") and name.endswith(".Key")]
        return {body[f"Tags.member.{number}.Key"]: body[f"Tags.member.{number}.Value"] for number in numbers}


def refused_xml(code: str, message: str = "refused by the test", status: int = 403) -> StubResponse:
    """Return an error in the query protocol."""
    body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return StubResponse(status, f"{body}<RequestId>id-of-the-request</RequestId></ErrorResponse>".encode())


_GRANT = """<{0}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{0}Result><Credentials>
<AccessKeyId>{1}</AccessKeyId><SecretAccessKey>secret of {1}</SecretAccessKey><SessionToken>token of {1}</SessionToken>
<Expiration>{2}</Expiration></Credentials></{0}Result></{0}Response>"""
