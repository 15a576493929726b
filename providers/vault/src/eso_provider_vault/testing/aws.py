"""AWS for tests: moto as a process of its own, which verifies the signature of every request once users exist.

with Aws.started(folder) as aws:
    key_id, key = aws.user("ann")
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from yarl import URL

from eso_api.values import SecretBytes
from eso_sdk.sigv4 import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.testing.moto import Moto
from kubebase.clock import SystemClock

_POLICY: Final = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
_ANYONE: Final = AwsCredentials("AKIAIOSFODNN7EXAMPLE", SecretBytes(b"unchecked"))


@dataclass(frozen=True, slots=True)
class Aws(Moto):
    """IAM and STS on one loopback port."""

    def user(self, name: str) -> tuple[str, str]:
        """Make a user who may do everything; returns its access key."""
        self.iam("CreateUser", UserName=name)
        self.iam("PutUserPolicy", UserName=name, PolicyName="all", PolicyDocument=_POLICY)
        found = self.iam("CreateAccessKey", UserName=name)
        return found["AccessKeyId"], found["SecretAccessKey"]

    def role(self, name: str) -> str:
        """Create a role that everyone may assume; return its ARN."""
        statement = '{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole","Resource":"*"}'
        trust = f'{{"Version":"2012-10-17","Statement":[{statement}]}}'
        return self.iam("CreateRole", RoleName=name, AssumeRolePolicyDocument=trust)["Arn"]

    def iam(self, action: str, **parameters: str) -> dict[str, str]:
        """Call IAM; return the elements of the response."""
        body = urlencode({"Action": action, "Version": "2010-05-08", **parameters}).encode()
        request = SignableRequest("POST", URL(self.url), {}, body)
        headers = signed_headers(request, _ANYONE, Scope("us-east-1", "iam"), SystemClock().now())
        status, body = self.send("POST", headers, body)
        if status != 200:
            raise AssertionError(f"IAM responded to {action} with {status}")
        return elements(body)

    def send(self, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Send a request as it is, as Vault does with the one inside a login."""
        request = urllib.request.Request(self.url, body, dict(headers), method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - same
                return response.status, response.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()


def elements(document: bytes) -> dict[str, str]:
    return {element.tag.rpartition("}")[2]: element.text or "" for element in ET.fromstring(document).iter()}  # noqa: S314 - ours
