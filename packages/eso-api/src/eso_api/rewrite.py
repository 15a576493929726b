"""Renaming and merging of fetched keys. Shared by ExternalSecret and PushSecret."""

from __future__ import annotations

from typing import Annotated, ClassVar

from eso_api.shapes import Fragment, exactly_one, one_of


class RegexpRewrite(Fragment, frozen=True, kw_only=True):
    """Replaces what a regular expression (RE2) matches in each key."""

    source: str
    """Expression to find."""
    target: str
    """Replacement; $1 or ${name} stand for groups."""


class TransformRewrite(Fragment, frozen=True, kw_only=True):
    """Renders a template for each key."""

    template: str
    """Template; .value is the key."""


class MergeRewrite(Fragment, frozen=True, kw_only=True):
    """Merges the JSON objects under the keys into one."""

    into: str = ""
    """Key of the result; needed for strategy JSON."""
    priority: list[str] = []
    """Keys in ascending priority; a later one wins."""
    priority_policy: Annotated[str, one_of("IgnoreNotFound", "Strict")] = "Strict"
    """What happens when a key of priority is missing; absent means Strict."""
    conflict_policy: Annotated[str, one_of("Ignore", "Error")] = "Error"
    """What happens when two objects hold the same property; absent means Error."""
    strategy: Annotated[str, one_of("Extract", "JSON")] = "Extract"
    """Extract (default) turns properties into keys; JSON writes the merged object under one key."""


class Rewrite(Fragment, frozen=True, kw_only=True):
    """One step of the pipeline that renames keys."""

    SHAPE: ClassVar = exactly_one()

    regexp: RegexpRewrite | None = None
    """Rename by regular expression."""
    transform: TransformRewrite | None = None
    """Rename by template."""
    merge: MergeRewrite | None = None
    """Merge the values."""
