"""Resource versions that clients send along with reads."""

from __future__ import annotations

from localkube.errors import StatusError, bad_request, server_timeout
from localkube.storage import ObjectStorage


def revision_of(text: str, *, where: str = "resourceVersion") -> int:
    """Return the revision of a request, 0 for none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        message = f'{where}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(message) if where != "resourceVersion" else StatusError(500, "", message)
    return int(text)


async def reject_future(store: ObjectStorage, requested: int) -> None:
    """Report a revision that this server has not reached: it may come, or be of another server."""
    if requested > store.revision:
        await store.wait_committed()
    if requested > store.revision:
        raise too_large(requested, store.revision, retry_after=1)


def too_large(requested: int, current: int, *, retry_after: int) -> StatusError:
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    error = server_timeout(message, retry_after)
    error.details["causes"] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    if not retry_after:
        del error.details["retryAfterSeconds"]
    return error
