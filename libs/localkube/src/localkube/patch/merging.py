"""JSON Merge Patch (RFC 7386), with the API server's words for a patch that cannot be one."""

from __future__ import annotations

from typing import Any

from kubebase.mergepatch import patched
from localkube.errors import bad_request
from localkube.patch.gotext import not_decodable
from localkube.patch.values import copied


def merge_patch(doc: Any, patch: Any) -> Any:
    """Apply the patch to a copy of the document."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: {not_decodable(patch, 'value of type map[string]interface {}')}")
    return copied(patched(doc, patch))
