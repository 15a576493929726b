"""Requests garbled in every way that a body, a query, a header or a path can be: odd values, and named mutations."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random as Draw
from typing import Any, Final

from localkube.testing.wellformed import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, PLAIN, STRATEGIC_PATCH, WATCH, Sent

ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, float("nan"), "", "x", [], {}, [None], [[]], [{}]),
    *({"a": None}, {"": 1}, {"x": {"y": [1]}}, ["x"], ["x", "x"], "a" * 300, "\ud83d", "\x00", "é", "1", "true"),
    *("..", "a/b", "A_b", "$patch", "$(a)", "2030-13-01T00:00:00Z", "9999-12-31T23:59:59Z", "1e9999", "(", "(?<=a)b"),
    *("/", "/~2", "/metadata/labels/-", "/spec/l/99999999999999999999", "/spec/l/-1", ".spec.l[*].n", ".spec[", "."),
    *("v1", "v2", "example.com/v1", "integer", "array", "object", "null", "int64", "date-time", "cidr", "Webhook"),
    *(
        "self",
        "self.",
        "oldSelf.a == self.a",
        "1 / 0 == 1",
        "self.x.y",
        "self.all(x, x)",
        "self.matches('(')",
        "has(self)",
    ),
    *("size(self) > 'a'", "timestamp('x') > self", "quantity('1z')", "[1][9]", "{'a': 1}.b", "self.l.map(x, x)[0].n"),
    *({"$ref": "#"}, {"type": "object"}, {"type": "array"}, {"not": {}}, {"fieldPath": 1}, {"rule": "self == self"}),
)
ODD_KEYS: Final = ("", "x", "$patch", "$retainKeys", "a.b", "metadata", "kind", "status", "f:a", "k:{", "items", "/~1")
ODD_QUERIES: Final = {
    "labelSelector": ("a in (b", "a=b,", "!", "a>1", "a>b", "=", "a notin ()", "é", "\x00", "a" * 5000),
    "fieldSelector": ("metadata.name=a,", "metadata.name\\=b", "spec.a=", "x=y", "==", "metadata.name!=a,status.x=1"),
    "limit": ("", "0", "-1", "x", "1.5", "9" * 18, "9" * 30),
    "continue": ("", "x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "e30", "é", "=" * 9),
    "resourceVersion": ("", "0", "1", "-1", "x", "9" * 19, "9" * 30, "\N{ARABIC-INDIC DIGIT ONE}"),
    "resourceVersionMatch": ("", "Exact", "NotOlderThan", "x"),
    "timeoutSeconds": ("-9", "x", "1.5", "-0x1", "9" * 30),
    "sendInitialEvents": ("", "true", "false", "x"),
    "allowWatchBookmarks": ("", "true", "x"),
    "pretty": ("", "true", "x"),
    "includeObject": ("", "None", "Object", "x"),
    "timeout": ("", "0", "1h", "x", "-1s", "1e9s", f"{'9' * 400}h"),
    "dryRun": ("", "All", "x"),
    "fieldManager": ("", "x", "a" * 200, "\x00", "é"),
    "fieldValidation": ("", "Strict", "Ignore", "Warn", "x"),
    "force": ("", "true", "x"),
    "propagationPolicy": ("", "Orphan", "Foreground", "x"),
    "gracePeriodSeconds": ("", "-1", "x", "9" * 30),
    "orphanDependents": ("", "true", "x"),
    "\x00é": ("\x00é",),
}
ODD_HEADERS: Final = {
    "Accept": (
        *("", "*/*", "x", ";;,,", "application/yaml", "application/json;q=x", "application/vnd.kubernetes.protobuf"),
        *(f"application/json;as={form};v=v1;g=meta.k8s.io" for form in ("Table", "PartialObjectMetadata", "x")),
        *("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9;g=x"),
    ),
    "Content-Type": (
        *("", "x", "text/plain", "application/yaml", "application/json; charset=x", "application/cbor", "*/*"),
        *("application/vnd.kubernetes.protobuf", JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH),
    ),
    "Impersonate-User": ("", "a", "system:serviceaccount:played:default", "system:serviceaccount::", "é"),
    "Impersonate-Group": ("", "system:masters", "é"),
    "Impersonate-Uid": ("", "x"),
    "Impersonate-Extra-%zz": ("x",),
    "Authorization": ("", "x", "Basic eDp5", "Bearer", "Bearer a.b.c", "Bearer é", "Bearer eyJhbGciOiJub25lIn0.e30."),
    "User-Agent": ("", "é/1"),
    "Accept-Encoding": ("gzip", "gzip;q=x", "x"),
    "Content-Encoding": ("gzip", "x"),
}


def malformed(seed: int) -> Iterator[Sent]:
    """Generate endless requests; equal seeds give equal requests."""
    draw = Draw(seed)  # noqa: S311 - repeatable, no secret
    while True:
        sent = draw.choice(PLAIN)
        for mutation in draw.choices(list(MUTATIONS), list(MUTATIONS.values()), k=draw.choice((1, 1, 1, 2, 3))):
            sent = mutation(sent, draw)
        yield replace(sent, body=None if sent.body is None else _text(sent.body))


Mutation = Callable[[Sent, Draw], Sent]


def another_value(sent: Sent, draw: Draw) -> Sent:
    return _edited(sent, draw, lambda holder, key: holder.__setitem__(key, copy.deepcopy(draw.choice(ODD_VALUES))))


def a_value_of_elsewhere(sent: Sent, draw: Draw) -> Sent:
    holders = list(_places(sent.body))
    if not holders:
        return sent
    holder, key = draw.choice(holders)
    return _edited(sent, draw, lambda other, place: other.__setitem__(place, copy.deepcopy(holder[key])))


def a_value_less(sent: Sent, draw: Draw) -> Sent:
    return _edited(sent, draw, lambda holder, key: holder.__delitem__(key))


def a_value_more(sent: Sent, draw: Draw) -> Sent:
    def add(holder: Any, key: Any) -> None:
        if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[draw.choice(ODD_KEYS)] = copy.deepcopy(draw.choice(ODD_VALUES))

    return _edited(sent, draw, add)


def another_body(sent: Sent, draw: Draw) -> Sent:
    return replace(sent, body=copy.deepcopy(draw.choice(ODD_VALUES)))


def a_value_wrapped_often(sent: Sent, draw: Draw) -> Sent:
    def wrap(holder: Any, key: Any) -> None:
        for _ in range(draw.choice((1, 40, 150))):
            holder[key] = draw.choice(([holder[key]], {"a": holder[key]}))

    return _edited(sent, draw, wrap)


def garbled_text(sent: Sent, draw: Draw) -> Sent:
    text = _text(sent.body)
    start, length = draw.randrange(len(text) + 1), draw.randrange(4)
    garbage = draw.choice(
        (b"", b"}", b'"', b",", b"\xff", b"\x00", b"1e999", b'"a":1,"a":2,', b"- &a [*a]\n", b"9" * 5000, b"[" * 20_000)
    )
    return replace(sent, body=text[:start] + garbage + text[start + length :])


def text_cut_off(sent: Sent, draw: Draw) -> Sent:
    text = _text(sent.body)
    return replace(sent, body=text[: draw.randrange(len(text) + 1)])


def another_query(sent: Sent, draw: Draw) -> Sent:
    name = draw.choice(list(ODD_QUERIES))
    return replace(sent, query=sent.query | {name: draw.choice(ODD_QUERIES[name])})


def a_watch_instead(sent: Sent, draw: Draw) -> Sent:
    return another_query(replace(sent, query=sent.query | WATCH), draw)


def another_header(sent: Sent, draw: Draw) -> Sent:
    name = draw.choice(list(ODD_HEADERS))
    return replace(sent, headers=sent.headers | {name: draw.choice(ODD_HEADERS[name])})


def another_path(sent: Sent, draw: Draw) -> Sent:
    parts = sent.path.split("/")
    place = draw.randrange(1, len(parts))
    odd = ("x", "A", "%00", "%ff", "%2F", "é", "status", "scale", "a" * 300, parts[-1])
    # Without its last part it would be a good request on everything there is.
    parts[place] = draw.choice(odd if place == len(parts) - 1 else ("", *odd))
    return replace(sent, path="/".join(parts))


def as_it_is(sent: Sent, _: Draw) -> Sent:
    """Return requests that succeed, so that later ones find objects."""
    return sent


MUTATIONS: Final[dict[Mutation, int]] = {
    another_value: 40,
    a_value_of_elsewhere: 8,
    a_value_less: 10,
    a_value_more: 8,
    another_body: 2,
    a_value_wrapped_often: 2,
    garbled_text: 3,
    text_cut_off: 2,
    another_query: 12,
    a_watch_instead: 2,
    another_header: 8,
    another_path: 3,
    as_it_is: 8,
}
"""Mutations with their weights."""


def _edited(sent: Sent, draw: Draw, edit: Callable[[Any, Any], None]) -> Sent:
    """Copy the request with one place of its body changed; an empty body stays as it is."""
    body = copy.deepcopy(sent.body)
    places = list(_places(body))
    if places:
        edit(*draw.choice(places))
    return replace(sent, body=body)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key])


def _text(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
