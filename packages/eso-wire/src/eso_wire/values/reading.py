"""Values to read, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.values.calls import SecretMap


class Shape(StrEnum):
    """One value, or all properties of one remote key."""

    SINGLE = "SINGLE"
    MAP = "MAP"


class MetadataPolicy(StrEnum):
    NONE = "NONE"
    FETCH = "FETCH"


@dataclass(frozen=True, slots=True)
class RemoteRef:
    """Where a value lives in the backend."""

    key: str
    version: str = ""
    property: str = ""
    metadata_policy: MetadataPolicy = MetadataPolicy.NONE


@dataclass(frozen=True, slots=True)
class GetItem:
    """One value to read (or, in a check, to look for). `item_id` is the caller's; results carry it back."""

    item_id: str
    ref: RemoteRef
    shape: Shape = Shape.SINGLE
    if_version_differs: str = ""


@dataclass(frozen=True, slots=True)
class ValueMetadata:
    """What a backend says about a value; never the value. Times in seconds."""

    provider_version: str = ""
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    suggested_refresh: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The value still has the version the caller named."""


@dataclass(frozen=True, slots=True)
class GetResult:
    """The outcome of one item."""

    item_id: str
    outcome: SecretBytes | SecretMap | NotModified | ProviderError
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindQuery:
    """Many remote keys by name, tags or path."""

    path: str = ""
    name_regexp: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One remote key with its value."""

    key: str
    value: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindPage:
    """Part of an answer to a query. A stream that ends without a last page was cut off."""

    found: tuple[Found, ...]
    last: bool = False


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a remote key is there, and in which version, without its value."""

    item_id: str
    exists: bool = False
    provider_version: str = ""
    error: ProviderError | None = None
