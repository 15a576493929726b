"""Resource versions that clients send along with reads."""

from __future__ import annotations

from localkube.errors import StatusError, bad_request, server_timeout
from localkube.storage import Store


def revision_of(text: str, *, where: str = "resourceVersion") -> int:
    """The revision a request names, 0 for none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        message = f'{where}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(message) if where != "resourceVersion" else StatusError(500, "", message)
    return int(text)


async def reject_future(store: Store, wanted: int) -> None:
    """What a client has seen elsewhere and this server has not: it may be on its way, or from another server."""
    if wanted > store.revision:
        await store.settled()
    if wanted > store.revision:
        raise too_large(wanted, store.revision, retry_after=1)


def too_large(wanted: int, current: int, *, retry_after: int) -> StatusError:
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    error = server_timeout(message, retry_after)
    error.details["causes"] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    if not retry_after:
        del error.details["retryAfterSeconds"]
    return error
