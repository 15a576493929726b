"""Every enum of the contract, in both directions.

The values differ only in the prefix that protobuf requires: OPERATION_GET <-> Operation.GET. A number unknown to this
version is read as UNSPECIFIED: None here. The caller decides whether a choice was required.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from eso_wire import values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.fields import Malformed
from eso_wire.errors import ErrorReason, RetryClass

W = TypeVar("W", bound=int)
W_co = TypeVar("W_co", bound=int, covariant=True)
D = TypeVar("D", bound=StrEnum)


class WireEnum(Protocol[W_co]):
    """The part of protobuf's generated enums that is used here."""

    def items(self) -> Iterable[tuple[str, W_co]]: ...


class EnumTable(Generic[W, D]):
    """An enum of the wire and the matching enum of the domain."""

    def __init__(self, wire: WireEnum[W], domain: type[D], prefix: str) -> None:
        numbers = {name.removeprefix(prefix): number for name, number in wire.items()}
        self._number_of = {member: numbers[member.value] for member in domain}
        self._member_of: dict[int, D] = {number: member for member, number in self._number_of.items()}

    def to(self, member: D) -> W:
        return self._number_of[member]

    def of(self, number: int) -> D | None:
        """Return the member; None for UNSPECIFIED and for values of newer peers."""
        return self._member_of.get(number)

    def choice(self, field: str, number: int) -> D:
        """Return the member of a required field; raise Malformed if it is unset or unknown."""
        member = self._member_of.get(number)
        if member is None:
            what = "is not set" if number == 0 else f"has a value unknown to this version ({number})"
            raise Malformed(field, what)
        return member

    def known(self, numbers: Iterable[int]) -> frozenset[D]:
        """Return the known members as a set, without unknown numbers."""
        return frozenset(self._member_of[number] for number in numbers if number in self._member_of)

    def numbers(self, members: Iterable[D]) -> list[W]:
        """Return the numbers in the order of the contract, so that equal sets are equal bytes."""
        return sorted(self._number_of[member] for member in members)


KIND_ROLE = EnumTable(pb.KindRole, values.KindRole, "KIND_ROLE_")
OPERATION = EnumTable(pb.Operation, values.Operation, "OPERATION_")
CONFIG_DELIVERY = EnumTable(pb.ConfigDelivery, values.ConfigDelivery, "CONFIG_DELIVERY_")
CREDENTIAL_KIND = EnumTable(pb.CredentialKind, values.CredentialKind, "CREDENTIAL_KIND_")
AUDIENCE_SOURCE = EnumTable(pb.AudienceSource, values.AudienceSource, "AUDIENCE_SOURCE_")
METADATA_POLICY = EnumTable(pb.MetadataPolicy, values.MetadataPolicy, "METADATA_POLICY_")
VALUE_SHAPE = EnumTable(pb.ValueShape, values.Shape, "VALUE_SHAPE_")
PUSH_PRECONDITION = EnumTable(pb.PushPrecondition, values.PushPrecondition, "PUSH_PRECONDITION_")
PUSH_OUTCOME = EnumTable(pb.PushOutcome, values.PushOutcome, "PUSH_OUTCOME_")
VALIDATION_STATE = EnumTable(pb.ValidationState, values.ValidationState, "VALIDATION_STATE_")
CHANGE_TYPE = EnumTable(pb.ChangeType, values.ChangeType, "CHANGE_TYPE_")
ERROR_REASON = EnumTable(pb.ErrorReason, ErrorReason, "ERROR_REASON_")
RETRY_CLASS = EnumTable(pb.RetryClass, RetryClass, "RETRY_CLASS_")
