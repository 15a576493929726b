"""The providers of this project and what they serve of v1, so that a missing package differs from a missing provider.

A provider package that is installed beside the CLI speaks for itself; this table is for those that are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STORES: Final[Mapping[str, str]] = {
    "aws": "aws",
    "azurekv": "azure",
    "bitwardensecretsmanager": "bitwarden",
    "crd": "kubernetes",
    "doppler": "doppler",
    "fake": "fake",
    "gcpsm": "gcp",
    "infisical": "infisical",
    "kubernetes": "kubernetes",
    "openBao": "vault",
    "vault": "vault",
    "webhook": "webhook",
}
"""Keys below `spec.provider` of a store, and the provider of each."""

GENERATORS: Final[Mapping[str, str]] = {
    "ACRAccessToken": "azure",
    "ECRAuthorizationToken": "aws",
    "Fake": "generators",
    "GCRAccessToken": "gcp",
    "MFA": "generators",
    "Password": "generators",
    "SSHKey": "generators",
    "STSSessionToken": "aws",
    "UUID": "generators",
    "VaultDynamicSecret": "vault",
    "Webhook": "webhook",
}
"""Kinds of v1 generators, and the provider of each."""
