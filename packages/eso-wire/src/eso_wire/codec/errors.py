"""Errors on the wire: ErrorDetail, inside a result or packed into a status, and the object it is about.

Reading an error never fails: whatever a peer sends, a failure happened and must be reported.
"""

from __future__ import annotations

from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.fields import ERROR_REASON, RETRY_CLASS, identifier, prose, seconds_of, to_duration
from eso_wire.errors import ErrorReason, ProviderError, RetryClass, Subject


def to_error(error: ProviderError) -> pb.ErrorDetail:
    return pb.ErrorDetail(
        reason=ERROR_REASON.to(error.reason),
        message=prose(error.message),
        retry=RETRY_CLASS.to(error.retry),
        retry_after=to_duration(error.retry_after),
        backend_code=prose(error.backend_code, bounds.MAX_NAME_CHARS),
        subject=None if error.subject is None else encode_object(error.subject),
    )


def from_error(detail: pb.ErrorDetail) -> ProviderError:
    """Decode an error. A reason or retry class unknown to this version becomes UNSPECIFIED."""
    return ProviderError(
        ERROR_REASON.of(detail.reason) or ErrorReason.UNSPECIFIED,
        prose(detail.message),
        retry=RETRY_CLASS.of(detail.retry) or RetryClass.UNSPECIFIED,
        retry_after=seconds_of(detail.retry_after),
        backend_code=prose(detail.backend_code, bounds.MAX_NAME_CHARS),
        subject=_subject(detail.subject) if detail.HasField("subject") else None,
    )


def encode_object(ref: Subject) -> pb.ObjectRef:
    return pb.ObjectRef(
        api_version=ref.api_version,
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        generation=ref.generation,
    )


def decode_object(message: pb.ObjectRef) -> Subject:
    return Subject(
        api_version=identifier("api_version", message.api_version),
        kind=identifier("kind", message.kind),
        namespace=identifier("namespace", message.namespace),
        name=identifier("name", message.name),
        uid=identifier("uid", message.uid),
        generation=message.generation,
    )


def _subject(message: pb.ObjectRef) -> Subject:
    """Decode the subject of an error: text for people, so it is shortened instead of refused."""
    limit = bounds.MAX_NAME_CHARS
    return Subject(
        api_version=prose(message.api_version, limit),
        kind=prose(message.kind, limit),
        namespace=prose(message.namespace, limit),
        name=prose(message.name, limit),
        uid=prose(message.uid, limit),
        generation=message.generation,
    )
