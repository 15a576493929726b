"""Signatures of AWS requests: the SDK's, under the name that the logins of Vault know."""

from __future__ import annotations

from eso_sdk.sigv4 import AwsCredentials, Scope, SignableRequest, signed_headers

__all__ = ["AwsCredentials", "Scope", "SignableRequest", "signed_headers"]
