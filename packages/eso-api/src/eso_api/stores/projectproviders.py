"""The providers of this project and what they serve of v1, so that a missing package differs from a missing provider.

An installed provider announces what it serves; these tables are for messages about those that are not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STORES: Final[Mapping[str, str]] = {
    "akeyless": "akeyless",
    "aws": "aws",
    "azurekv": "azure",
    "bitwardensecretsmanager": "bitwarden",
    "crd": "kubernetes",
    "doppler": "doppler",
    "fake": "fake",
    "gcpsm": "gcp",
    "github": "github",
    "gitlab": "gitlab",
    "infisical": "infisical",
    "kubernetes": "kubernetes",
    "onepassword": "onepassword",
    "onepasswordSDK": "onepassword",
    "openBao": "vault",
    "vault": "vault",
    "webhook": "webhook",
}
"""Keys below `spec.provider` of a store, and the provider of each."""

GENERATORS: Final[Mapping[str, str]] = {
    "ACRAccessToken": "azure",
    "BeyondtrustWorkloadCredentialsDynamicSecret": "tokens",
    "CloudsmithAccessToken": "tokens",
    "ECRAuthorizationToken": "aws",
    "Fake": "generators",
    "GCRAccessToken": "gcp",
    "GithubAccessToken": "github",
    "GitlabDeployToken": "gitlab",
    "Grafana": "tokens",
    "MFA": "generators",
    "Password": "generators",
    "QuayAccessToken": "tokens",
    "SSHKey": "generators",
    "STSSessionToken": "aws",
    "UUID": "generators",
    "VaultDynamicSecret": "vault",
    "Webhook": "webhook",
}
"""Kinds of v1 generators, and the provider of each."""

REMOVED_UPSTREAM: Final = frozenset({"alibaba", "device42"})
"""Keys of v1beta1 whose backends upstream has removed. The CRDs keep them, so that old manifests get a message."""
