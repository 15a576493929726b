"""Limits of one message. Both ends refuse or shorten what exceeds them; neither trusts the other to comply.

Identifiers and collections above a limit are refused. Text for people is shortened: a long explanation is no reason to
lose the response that contains it.
"""

from __future__ import annotations

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""One gRPC message, in either direction."""

# --- identifiers -----------------------------------------------------------------------------------------------------
MAX_KEY_CHARS = 4096
"""A remote key, a property, a path, a regular expression, a key of a map of values."""
MAX_NAME_CHARS = 1024
"""A name given by people or programs: object names, item ids, versions, kinds, idempotency keys, labels."""
MAX_TOKEN_CHARS = 65_536
"""A service account token, or a resume token."""

# --- text for people -------------------------------------------------------------------------------------------------
MAX_MESSAGE_CHARS = 2048
MAX_DETAIL_BYTES = 4096
"""The error of a call travels in trailing metadata, for which HTTP/2 peers reserve little space."""

# --- collections -----------------------------------------------------------------------------------------------------
MAX_BATCH_ITEMS = 500
"""Items of one Get, Check, Push or Delete."""
MAX_PAGE_ITEMS = 1000
"""Values in one page of a find."""
MAX_MAP_ENTRIES = 10_000
"""Properties of one remote key; keys of one pushed or generated Secret."""
MAX_CREDENTIALS = 500
"""Resolved references of one configuration."""
MAX_KINDS = 200
MAX_PATHS = 200
"""Credential paths of one kind."""
MAX_WATCHES = 10_000
"""Watches in one message of a subscription, and watch ids in one event."""
MAX_ANNOTATIONS = 1000
"""Annotations of a service account."""
MAX_SHORT_LIST = 100
"""Versions, features, audiences, operations, warnings, conditions, dependencies, attributes, tags, labels."""

# --- documents -------------------------------------------------------------------------------------------------------
MAX_SPEC_BYTES = 1024 * 1024
"""A configuration as JSON; the size of an object that the API server can store."""
MAX_STATE_BYTES = 1024 * 1024
"""State of a generator, which is stored in an object as well."""
MAX_STRUCT_DEPTH = 32
MAX_STRUCT_NODES = 10_000
"""Provider metadata of a pushed value."""

# --- time ------------------------------------------------------------------------------------------------------------
MAX_SECONDS = 10 * 365 * 24 * 3600.0
"""Upper limit of every delay, interval and deadline."""
