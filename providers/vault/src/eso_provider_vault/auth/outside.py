"""Requests to the clouds' own token services: the SDK's, under the name that the logins of Vault know."""

from __future__ import annotations

from eso_sdk.cloudservices import ask_cloud

__all__ = ["ask_cloud"]
