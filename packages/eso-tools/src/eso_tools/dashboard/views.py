"""From rows, causes and explanations to the values that templates show. Pure; templates only place and escape them.

Every list is bounded. Messages come from users, providers and backends: they are cut here and escaped in the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from eso_tools.dashboard.calls import Calls, ProviderCalls
from eso_tools.objects import RecordedEvent
from eso_tools.status.causes import Cause, counted
from eso_tools.status.overview import (
    NO_STATUS,
    OVERVIEW_KINDS,
    PROVIDERS,
    STORES,
    AnyKind,
    Health,
    ObjectId,
    Overview,
    Row,
    generation_of,
)
from eso_tools.times import distance
from eso_tools.why.explanation import Explanation, Finding, Mark
from kubebase.meta import ObjectKey

MAX_CAUSES: Final = 50
MAX_EXAMPLES: Final = 24
MAX_MESSAGES: Final = 5
MAX_STORES: Final = 500
MAX_USERS: Final = 100
PAGE_ROWS: Final = 100
_MAX_TEXT: Final = 2000
_TITLES: Final = {
    "store": "Store",
    "generator": "Generator",
    "provider": "Provider",
    "entry": "Entries",
    "template": "Template",
    "target": "Target",
    "source": "Source",
    "service": "Service",
}

View = dict[str, Any]


def url_of(row: Row) -> str:
    return f"/objects/{row.custom.crd_name}/{quote(row.namespace or '-', safe='')}/{quote(row.name, safe='')}"


def row_view(row: Row, now: datetime) -> View:
    return {
        "kind": row.custom.name,
        "generation": row.generation,
        "namespace": row.namespace,
        "name": row.name,
        "url": "" if row.health is Health.ABSENT else url_of(row),
        "health": row.health.value,
        "reason": "no status yet" if row.reason == NO_STATUS else row.reason,
        "since": time_view(row.since, now),
        "next_attempt": time_view(row.next_attempt, now),
    }


def time_view(text: str, now: datetime) -> View:
    return {"text": text, "distance": distance(text, now) if text else ""}


# --- problems ---------------------------------------------------------------------------------------------------------


def problems_view(overview: Overview, causes: Sequence[Cause], now: datetime) -> View:
    count = len(causes)
    calm = "Everything is ready" if overview.rows else "Nothing here yet"
    return {
        "headline": calm if not count else "1 problem" if count == 1 else f"{count} problems",
        "ready": sum(row.ready for row in overview.rows),
        "total": len(overview.rows),
        "causes": [_cause_view(cause, now) for cause in causes[:MAX_CAUSES]],
        "more_causes": max(count - MAX_CAUSES, 0),
        "kinds": list(kind_views(overview)),
        **gaps_view(overview),
    }


def _cause_view(cause: Cause, now: datetime) -> View:
    examples = (*(cause.roots if len(cause.roots) > 1 else ()), *cause.waiting)
    by_kind = {custom: sum(row.custom is custom for row in cause.waiting) for custom in _kinds(cause.waiting)}
    return {
        "root": row_view(cause.roots[0], now) if len(cause.roots) == 1 else None,
        "root_text": counted(len(cause.roots), cause.custom),
        "state": "no operator has reported yet" if cause.reason == NO_STATUS else cause.reason,
        "messages": [cut(message) for message in cause.messages[:MAX_MESSAGES]],
        "more_messages": max(len(cause.messages) - MAX_MESSAGES, 0),
        "since": time_view(cause.since, now),
        "next_attempt": time_view(cause.next_attempt, now),
        "at_risk": cause.at_risk,
        "waiting_count": len(cause.waiting),
        "waiting_text": " and ".join(counted(count, custom) for custom, count in by_kind.items()),
        "examples": [row_view(row, now) for row in examples[:MAX_EXAMPLES]],
        "example_count": len(examples),
        "more": max(len(examples) - MAX_EXAMPLES, 0),
    }


def kind_views(overview: Overview) -> Iterator[View]:
    states = (Health.GOOD, Health.CONTENDED, Health.BAD, Health.WAITING)
    ready, contended, bad, waiting = (overview.counts(each) for each in states)
    for custom in OVERVIEW_KINDS:
        total = sum(each.get(custom, 0) for each in (ready, contended, bad, waiting))
        if total:
            yield {
                "kind": custom.name,
                "generation": generation_of(custom),
                "resource": custom.crd_name,
                "url": f"/objects?{urlencode({'kind': custom.crd_name})}",
                "ready": ready.get(custom, 0) + contended.get(custom, 0),
                "total": total,
            }


def gaps_view(overview: Overview) -> View:
    gaps = [{"resource": gap.custom.crd_name, "why": gap.why.value} for gap in overview.gaps]
    return {"gaps": gaps, "left_out": overview.left_out}


def namespaces_of(overview: Overview) -> list[str]:
    return sorted({row.namespace for row in overview.rows if row.namespace})


# --- objects ----------------------------------------------------------------------------------------------------------


def objects_view(overview: Overview, query: Mapping[str, str], now: datetime) -> View:
    """Return the page of objects that a query selects: text, state, kind, namespace and page number."""
    found = [row for row in overview.rows if _matches(row, query)]
    found.sort(key=lambda row: (row.health is Health.GOOD, row.namespace, row.name, row.custom.name))
    pages = max((len(found) - 1) // PAGE_ROWS, 0)
    page = min(int(query["page"]) if query.get("page", "").isdecimal() else 0, pages)
    start = page * PAGE_ROWS
    shown = found[start : start + PAGE_ROWS]
    filters = {name: value for name, value in query.items() if name != "page" and value}
    return {
        "rows": [row_view(row, now) for row in shown],
        "count": len(found),
        "first": start + 1,
        "last": start + len(shown),
        "before": f"/objects?{urlencode({**filters, 'page': page - 1})}" if page else "",
        "after": f"/objects?{urlencode({**filters, 'page': page + 1})}" if page < pages else "",
        "kinds": list(kind_views(overview)),
        "chosen": query.get("kind", ""),
        "state": query.get("state", ""),
        **gaps_view(overview),
    }


def _matches(row: Row, query: Mapping[str, str]) -> bool:
    if query.get("state") and row.health.value != query["state"]:
        return False
    if query.get("kind") and row.custom.crd_name != query["kind"]:
        return False
    if query.get("namespace") and row.namespace != query["namespace"]:
        return False
    text = f"{row.custom.name} {row.id.key} {row.reason}".lower()
    return all(word in text for word in query.get("q", "").lower().split())


# --- stores and providers ---------------------------------------------------------------------------------------------


def stores_view(
    overview: Overview, calls: Calls, labels: Mapping[tuple[str, ObjectKey], tuple[str, ...]], now: datetime
) -> View:
    users: dict[ObjectId, int] = {}
    failing: dict[ObjectId, int] = {}
    for row in overview.rows:
        for need in row.needs:
            users[need] = users.get(need, 0) + 1
            if not row.ready:
                failing[need] = failing.get(need, 0) + 1
    stores = sorted((row for row in overview.rows if row.custom in STORES), key=_bad_first)
    providers = sorted((row for row in overview.rows if row.custom in PROVIDERS), key=_bad_first)
    return {
        "stores": [
            {**row_view(row, now), "users": users.get(row.id, 0), "failing": failing.get(row.id, 0)}
            for row in stores[:MAX_STORES]
        ],
        "more_stores": max(len(stores) - MAX_STORES, 0),
        "providers": [
            {**row_view(row, now), **_calls_view(calls.of(labels.get((row.custom.name, row.id.key), ())))}
            for row in providers[:MAX_STORES]
        ],
        "refused": calls.refused if providers else 0,
        "calls_unknown": calls.unknown,
        **gaps_view(overview),
    }


def _calls_view(calls: ProviderCalls) -> View:
    return {
        "calls": calls.calls,
        "failed": calls.failed,
        "mean": _duration(calls.mean),
        "high": f"≤ {_duration(calls.high)}" if calls.high is not None else "",
        "breaker": calls.breaker,
        "running": calls.running,
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds == float("inf"):
        return "10 s and more"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _bad_first(row: Row) -> tuple[bool, str, str]:
    return (row.health is Health.GOOD, row.namespace, row.name)


# --- one object -------------------------------------------------------------------------------------------------------


def object_view(row: Row, explanation: Explanation, overview: Overview, now: datetime) -> View:
    users = [each for each in overview.rows if row.id in each.needs]
    users.sort(key=_bad_first)
    needed = [each for each in overview.rows if each.id in row.needs]
    return {
        "row": row_view(row, now),
        "needs": [row_view(each, now) for each in needed[:MAX_EXAMPLES]],
        "head": _finding_view(explanation.head, None),
        "columns": list(_columns(explanation)),
        "users": [row_view(each, now) for each in users[:MAX_USERS]],
        "user_count": len(users),
        "kind_url": f"/objects?{urlencode({'kind': row.custom.crd_name})}",
        "namespace_url": f"/objects?{urlencode({'namespace': row.namespace})}",
    }


def _columns(explanation: Explanation) -> Iterator[View]:
    """Yield the steps of the data flow from left to right; findings of the same step are below each other."""
    cause = explanation.cause
    column: View | None = None
    for finding in explanation.steps:
        title = _TITLES.get(finding.name, finding.name.capitalize())
        if column is None or column["title"] != title:
            if column is not None:
                yield column
            column = {"title": title, "findings": []}
        column["findings"].append(_finding_view(finding, cause))
    if column is not None:
        yield column


def _finding_view(finding: Finding, cause: Finding | None) -> View:
    return {
        "mark": {Mark.GOOD: "good", Mark.BAD: "bad", Mark.OPEN: "open"}[finding.mark],
        "subject": finding.subject,
        "state": finding.state,
        "message": cut(finding.message),
        "notes": [cut(note) for note in finding.notes],
        "below": [_finding_view(each, cause) for each in finding.below],
        "is_cause": finding is cause,
    }


def event_views(events: Iterable[RecordedEvent], now: datetime) -> list[View]:
    """Return the events, the newest first."""
    return [
        {
            "health": "bad" if event.type == "Warning" else "good",
            "reason": event.reason,
            "message": cut(event.message),
            "count": event.count or 1,
            "at": time_view(event.at, now),
        }
        for event in sorted(events, key=lambda event: event.at, reverse=True)
    ]


def cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _kinds(rows: Iterable[Row]) -> list[AnyKind]:
    return list(dict.fromkeys(row.custom for row in rows))
