"""Sources of a process identity, for tests: instance metadata (version 2 only) and Pod Identity.

async with Front.before("") as endpoint:
    endpoint.respond("*", Metadata())
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.url)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eso_provider_aws.testing.front import RecordedRequest, StubResponse
from kubebase.clock import SystemClock, rfc3339

POD_PATH: Final = "/v1/credentials"
_ROLE: Final = "role-of-the-instance"
_TOKEN: Final = "token-of-the-instance"  # noqa: S105 - nothing is behind it
_IAM: Final = "/latest/meta-data/iam/security-credentials/"


@dataclass(slots=True)
class Metadata:
    """Both services."""

    broken: bool = False

    def __call__(self, request: RecordedRequest) -> StubResponse:
        if self.broken:
            return StubResponse(500, b"")
        if request.path == POD_PATH:
            return _keys("ASIAOFTHEPOD")
        if request.operation == "PUT /latest/api/token":
            return StubResponse(200, _TOKEN.encode())
        if request.headers.get("x-aws-ec2-metadata-token") != _TOKEN:
            return StubResponse(401, b"")
        if request.path == _IAM:
            return StubResponse(200, _ROLE.encode())
        return _keys("ASIAOFTHEINSTANCE") if request.path == _IAM + _ROLE else StubResponse(404, b"")


def _keys(key_id: str) -> StubResponse:
    expiration = rfc3339(SystemClock().now() + timedelta(hours=6))
    keys = {"AccessKeyId": key_id, "SecretAccessKey": "secret", "Token": "token", "Expiration": expiration}
    return StubResponse(200, json.dumps({"Code": "Success", **keys}).encode())
