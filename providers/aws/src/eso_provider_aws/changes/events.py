"""Decoding of messages: EventBridge events of Secrets Manager and Parameter Store, bare or wrapped by SNS. Pure.

| event | type of the change |
|---|---|
| `AWS API Call via CloudTrail`, `AWS Service Event via CloudTrail` of aws.secretsmanager | `detail.eventName` decides |
| `Parameter Store Change`, `Parameter Store Policy Action` of aws.ssm | `detail.operation`, `detail.policy-type` |

Denied calls changed nothing. Any other event is ignored.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eso_provider_aws.clients import PARAMETER_STORE, SECRETS_MANAGER
from eso_sdk.matching import Matcher
from eso_wire.errors import ProviderError
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, WatchItem

_SECRET_CHANGES: Final = frozenset(
    {
        "CreateSecret",
        "PutSecretValue",
        "UpdateSecret",
        "UpdateSecretVersionStage",
        "RestoreSecret",
        "RotationSucceeded",
        "TagResource",
        "UntagResource",
        "DeleteSecret",
    }
)
_VERSIONED: Final = frozenset({"CreateSecret", "PutSecretValue", "UpdateSecret"})
_CALLS: Final = frozenset({"AWS API Call via CloudTrail", "AWS Service Event via CloudTrail"})
_SUFFIX: Final = re.compile(r"-[A-Za-z0-9]{6}")
_SUFFIX_LENGTH: Final = 7


class NotAnEventError(ValueError):
    """A message that is not an EventBridge event."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a secret or parameter. One of `names` is the true name: an ARN does not show where a name ends."""

    service: str
    region: str
    names: frozenset[str]
    deleted: bool = False
    version: str = ""
    stages: frozenset[str] = frozenset()
    """The stages that the new version has; empty if it may concern every version."""
    at: datetime | None = None
    event_id: str = ""
    """The id of the event, the same in every copy."""


def change_in(body: str) -> Change | None:
    """Return the change in a message; None if it concerns nothing that can be watched."""
    event = _object(body)
    if event.get("Type") == "Notification" and isinstance(event.get("Message"), str):
        event = _object(event["Message"])
    if not isinstance(event.get("source"), str) or not isinstance(event.get("detail"), dict):
        raise NotAnEventError
    match event["source"], event.get("detail-type"):
        case "aws.secretsmanager", str(kind) if kind in _CALLS:
            return _of_secret(event, event["detail"])
        case "aws.ssm", "Parameter Store Change":
            return _of_parameter(event, event["detail"])
        case "aws.ssm", "Parameter Store Policy Action" if event["detail"].get("policy-type") == "Expiration":
            name = _text(event["detail"], "parameter-name")
            return _change(event, PARAMETER_STORE, parameter_names(name), deleted=True)
    return None


def secret_names(secret_id: str) -> frozenset[str]:
    """Return the possible names of a secret: an ARN may end with six random characters after the name."""
    if not secret_id.startswith("arn:"):
        return frozenset({secret_id})
    name = secret_id.partition(":secret:")[2]
    whole = _SUFFIX.fullmatch(name[-_SUFFIX_LENGTH:])
    return frozenset({name, name[:-_SUFFIX_LENGTH]} if whole else {name})


def parameter_names(name: str) -> frozenset[str]:
    """Return the possible names of a parameter: an ARN does not show whether the name begins with a slash."""
    if not name.startswith("arn:"):
        return frozenset({name})
    below = name.partition(":parameter/")[2]
    return frozenset({below, f"/{below}"})


def _of_secret(event: dict[str, Any], detail: dict[str, Any]) -> Change | None:
    call = _text(detail, "eventName")
    if call not in _SECRET_CHANGES or detail.get("errorCode"):
        return None
    request, response = _part(detail, "requestParameters"), _part(detail, "responseElements")
    ids = [_text(part, key) for part in (request, response) for key in ("secretId", "name", "arn", "aRN", "ARN")]
    ids += [_text(_part(detail, "additionalEventData"), key) for key in ("SecretId", "secretId", "secretARN")]
    names = frozenset[str]().union(*(secret_names(each) for each in ids if each))
    version = _text(request, "clientRequestToken") if call in _VERSIONED else ""
    stages = request.get("versionStages") if call == "PutSecretValue" else None
    return _change(
        event,
        SECRETS_MANAGER,
        names,
        deleted=call == "DeleteSecret",
        version=version,
        stages=frozenset(str(stage) for stage in stages) if isinstance(stages, list) else frozenset(),
    )


def _of_parameter(event: dict[str, Any], detail: dict[str, Any]) -> Change | None:
    names = parameter_names(_text(detail, "name"))
    return _change(event, PARAMETER_STORE, names, deleted=detail.get("operation") == "Delete")


def _change(event: dict[str, Any], service: str, names: frozenset[str], **more: Any) -> Change | None:
    names -= {""}
    if not names:
        return None
    return Change(
        service, _text(event, "region"), names, at=_time(_text(event, "time")), event_id=_text(event, "id"), **more
    )


def _object(raw: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        raise NotAnEventError from None
    if not isinstance(found, dict):
        raise NotAnEventError
    return found


def _part(among: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = among.get(key)
    return found if isinstance(found, dict) else {}


def _text(among: Mapping[str, Any], key: str) -> str:
    found = among.get(key)
    return found if isinstance(found, str) else ""


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- The watches of a subscription, and which of them a change concerns. Pure ----------------------------------------
#
# A change may be reported to a watch that it does not concern, which costs one read. It is never missed.


CURRENT: Final = "AWSCURRENT"
MAX_PREFIXES: Final = 10
"""Names or beginnings of names that one listing can be narrowed to."""

Naming = Callable[[str], frozenset[str]]
"""Maps the key of a reference to the names that it may mean."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The prefixes of the listed names; None for all names."""

    prefixes: tuple[str, ...] | None = None

    def covers(self, name: str) -> bool:
        return self.prefixes is None or name.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class State:
    """The state of one name in a listing."""

    versions: Mapping[str, str]
    """Versions by the `version` of a reference; the empty string is the current version."""
    otherwise: str = ""
    """The version for any other `version` of a reference."""
    tags: Mapping[str, str] | None = field(default=None, repr=False)
    stamp: float = 0.0
    """The time of its last change."""

    def view(self, version: str) -> tuple[str, Mapping[str, str] | None]:
        """Return the version that a reference reads, and the tags."""
        return self.versions.get(version, self.otherwise), self.tags


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of one listing."""

    number: int
    scope: Scope
    states: Mapping[str, State] = field(repr=False)

    def find(self, names: Iterable[str]) -> State | None:
        return next((self.states[name] for name in sorted(names) if name in self.states), None)

    @property
    def latest(self) -> float:
        return max((state.stamp for state in self.states.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class _Search:
    watch_id: str
    matcher: Matcher
    tags: Mapping[str, str]

    def concerns(self, names: Iterable[str], states: Sequence[State | None]) -> bool:
        """Return whether the name matches and, if tags are known, the tags before or after the change match."""
        if not any(map(self.matcher.matches, names)):
            return False
        known = [state.tags for state in states if state is not None and state.tags is not None]
        return not known or any(self.tags.items() <= tags.items() for tags in known)


class Topics:
    """The watches of one subscription for one service in one region."""

    def __init__(self, items: Sequence[WatchItem], *, service: str, region: str, prefix: str, naming: Naming) -> None:
        self._service = service
        self._region = region
        self._names: dict[str, frozenset[str]] = {}
        self._by_name: dict[str, list[WatchItem]] = {}
        self._searches: list[_Search] = []
        self._refs = [item for item in items if item.ref is not None]
        for item in items:
            if item.ref is None:
                self._add_search(item)
                continue
            self._names[item.watch_id] = naming(f"{prefix}{item.ref.key}")
            for name in self._names[item.watch_id]:
                self._by_name.setdefault(name, []).append(item)

    def _add_search(self, item: WatchItem) -> None:
        try:
            matcher = Matcher(FindQuery(name_regexp=item.name_regexp))
        except ProviderError:
            return  # a pattern that no search accepts finds nothing
        # A name wins over tags, as in a search.
        self._searches.append(_Search(item.watch_id, matcher, {} if item.name_regexp else item.tags))

    def prefixes(self) -> frozenset[str] | None:
        """Return the prefixes of the watched names; None for all."""
        return None if self._searches else frozenset(self._by_name)

    # --- events ------------------------------------------------------------------------------------------------------

    def concerned(self, change: Change, *, unread: bool = False) -> tuple[str, ...]:
        """Return the watches that a change concerns; with `unread`, only those with a known version."""
        if change.service != self._service or change.region not in ("", self._region):
            return ()
        found = []
        for item in self._items_of(change.names):
            known = item.known_version
            if _touches(change, item) and (not unread or (known and known != change.version)):
                found.append(item.watch_id)
        if not unread and _touches(change, None):
            found += [search.watch_id for search in self._searches if search.concerns(change.names, ())]
        return tuple(dict.fromkeys(found))

    # --- listings ----------------------------------------------------------------------------------------------------

    def changes(self, before: Listing, after: Listing, *, now: datetime) -> Iterator[ChangeEvent]:
        """Yield one event for each name that differs."""
        for name in sorted(before.states.keys() | after.states.keys()):
            old, new = before.states.get(name), after.states.get(name)
            if old == new or not (before.scope.covers(name) and after.scope.covers(name)):
                continue
            ids = [item.watch_id for item in self._items_of({name}) if _differ(old, new, item)]
            ids += [
                search.watch_id
                for search in self._searches
                if _differ(old, new) and search.concerns({name}, (old, new))
            ]
            if ids:
                yield _event(new, tuple(dict.fromkeys(ids)), now)

    def missed(self, listing: Listing, *, since: float, disconnected: bool, now: datetime) -> Iterator[ChangeEvent]:
        """Yield the changes that a subscriber may have missed since then.

        A surplus event costs one read; a missing event would be an error.

        If the subscriber was disconnected, keys that are absent now are reported as well, because they may have
        existed.
        """
        for item in self._refs:
            state = listing.find(self._names[item.watch_id])
            if item.known_version:
                present = state.versions.get(_version(item)) if state else None
                changed = state is None or present not in (None, item.known_version)
            else:
                changed = disconnected if state is None else state.stamp > since
            if changed:
                yield _event(state, (item.watch_id,), now)
        if disconnected and self._searches:
            yield ChangeEvent(ChangeType.UPDATED, tuple(search.watch_id for search in self._searches), observed_at=now)

    def _items_of(self, names: Iterable[str]) -> Iterator[WatchItem]:
        for name in sorted(names):
            yield from self._by_name.get(name, ())


def scope_of(subscriptions: Iterable[Topics]) -> Scope:
    """Return the narrowest scope of a listing that covers all topics."""
    names: set[str] = set()
    for topics in subscriptions:
        prefixes = topics.prefixes()
        if prefixes is None:
            return Scope()
        names |= prefixes
    if len(names) <= MAX_PREFIXES:
        return Scope(tuple(sorted(names)))
    common = os.path.commonprefix(sorted(names))  # noqa: RUF071 - characters are meant, not folders
    return Scope((common,) if common else None)


def _version(item: WatchItem) -> str:
    return item.ref.version if item.ref is not None else ""


def _touches(change: Change, item: WatchItem | None) -> bool:
    """Return whether a change concerns the version that the reference reads."""
    if not change.stages or CURRENT in change.stages:
        return True
    return item is not None and _version(item) in change.stages


def _differ(old: State | None, new: State | None, item: WatchItem | None = None) -> bool:
    if old is None or new is None:
        return True
    version = _version(item) if item is not None else ""
    return old.view(version) != new.view(version)


def _event(state: State | None, ids: tuple[str, ...], now: datetime) -> ChangeEvent:
    if state is None:
        return ChangeEvent(ChangeType.DELETED, ids, observed_at=now)
    return ChangeEvent(ChangeType.UPDATED, ids, state.versions.get("", ""), now)
