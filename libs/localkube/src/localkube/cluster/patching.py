"""Apply one patch of any of the four types to a live object; an apply patch may also create one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, assert_never

from kubebase.meta import JsonObject
from localkube.cluster.target import Target
from localkube.errors import Cause, StatusError, bad_request, invalid, unsupported_media_type
from localkube.model import WriteOptions
from localkube.patch import apply, json_patch, merge_patch, reset_fields, strategic_merge
from localkube.patch.typecheck import MismatchError

PatchType = Literal["json", "merge", "strategic", "apply"]

_CUSTOM_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"


def patched(
    target: Target,
    patch_type: PatchType,
    patch: Any,
    live: JsonObject | None,
    *,
    options: WriteOptions,
    now: str,
    versions: Collection[str],
) -> JsonObject:
    """Return the object after the patch; `live` is consumed. An applied object already carries its managed fields."""
    document = live or {}
    match patch_type:
        case "json":
            result = json_patch(document, patch)
        case "merge":
            result = merge_patch(document, patch)
        case "strategic":
            if target.kind.custom:
                raise unsupported_media_type(_CUSTOM_TYPES)
            result = strategic_merge(document, patch, target.kind.schema.openapi)
        case "apply":
            _check_applied(target, patch)
            try:
                result = apply(
                    live,
                    patch,
                    manager=options.field_manager,
                    force=options.force,
                    schema=target.kind.schema.openapi,
                    now=now,
                    subresource=target.subresource,
                    api_version=target.resource.api_version,
                    reset=reset_fields(target.kind, target.subresource),
                    versions=versions,
                )
            except MismatchError:
                raise _untyped(target) from None
        case _:
            assert_never(patch_type)
    return _of_kind(target, result)


def _untyped(target: Target) -> StatusError:
    """Report that the stored object cannot be merged because it is older than its schema."""
    what = f"{target.namespace}/{target.name}; {target.resource.api_version}, Kind={target.resource.kind}"
    why = "an item of a list lacks the fields that tell it from the others"
    return StatusError(500, "", f"failed to create typed live object ({what}): {why}")


def _check_applied(target: Target, patch: Any) -> None:
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    if not isinstance(metadata, dict):
        raise bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    target.check_name(metadata)


def _of_kind(target: Target, result: Any) -> JsonObject:
    """Refuse a patch that changes the kind or the apiVersion of the object."""
    if not isinstance(result, dict):
        raise bad_request("the patch does not leave an object")
    resource = target.resource
    for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        given = result.setdefault(field, expected)
        if given != expected:
            raise _other_kind(target, Cause(field, f'Invalid value: "{given}": must be {expected}'), result)
    return result


def _other_kind(target: Target, cause: Cause, result: JsonObject) -> StatusError:
    if target.kind.custom:
        group = str(result.get("apiVersion") or target.resource.api_version).rpartition("/")[0]
        return invalid(str(result["kind"]), target.name, [cause], group=group)
    # The real server repeats the whole object here, which might be a Secret.
    return invalid("", "", [Cause("patch", f"Invalid value: {cause.field}: {cause.message}")])
