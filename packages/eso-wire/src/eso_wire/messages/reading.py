"""Values to read, and the result of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.messages.calls import SecretMap


class Shape(StrEnum):
    """One value, or all properties of one remote key."""

    SINGLE = "SINGLE"
    MAP = "MAP"


class MetadataPolicy(StrEnum):
    NONE = "NONE"
    FETCH = "FETCH"


class RemoteRef(msgspec.Struct, frozen=True, cache_hash=True):
    """The location of a value in the backend.

    A struct of msgspec: the operator hashes each of them many times, which takes a dataclass five times as long.
    """

    key: str
    version: str = ""
    property: str = ""
    metadata_policy: MetadataPolicy = MetadataPolicy.NONE


@dataclass(frozen=True, slots=True)
class GetItem:
    """One value to read (or, in a check, to look for). The caller chooses `item_id`; the result repeats it."""

    item_id: str
    ref: RemoteRef
    shape: Shape = Shape.SINGLE
    if_version_differs: str = ""


@dataclass(frozen=True, slots=True)
class ValueMetadata:
    """The backend's information about a value, without the value. Times in seconds."""

    provider_version: str = ""
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    suggested_refresh: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The value still has the version that the caller named."""


@dataclass(frozen=True, slots=True)
class GetResult:
    """The result of one item."""

    item_id: str
    outcome: SecretBytes | SecretMap | NotModified | ProviderError
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindQuery:
    """A search for remote keys by name, tags or path."""

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
    """A part of the answer to a query. A stream that ends without a last page was cut off."""

    found: tuple[Found, ...]
    last: bool = False
    considered: int = 0
    """How many keys were compared with the query; told in the last page, 0 if the provider does not know."""
    missing: str = ""
    """Names the root of the search, if the backend confirmed that it does not exist; told in the last page."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a remote key exists, and its version, without its value."""

    item_id: str
    exists: bool = False
    provider_version: str = ""
    error: ProviderError | None = None
