"""R-no-leak: values are masked in every spelling; names of keys that hold a short value stay as they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.redaction import MASK, MAX_TEXT, PREFIX, SHORTEST, PartlyPublic, Redactor, texts_in

SPELLINGS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 without padding": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON of Go": lambda text: json.dumps(text)[1:-1].replace("<", r"\u003c").replace("&", r"\u0026"),
    "repr": lambda text: repr(text)[1:-1],
    "repr of bytes": lambda text: repr(text.encode())[2:-1],
    "URL-quoted": lambda text: quote(text, safe=""),
    "in a query": quote_plus,
    "without blanks around it": str.strip,
}
PLACES: dict[str, Callable[[str], bytes]] = {
    "the value": str.encode,
    "a line of the value": lambda text: f"first\n{text}\nlast".encode(),
    "a text in JSON": lambda text: json.dumps({"a": [{"b": text}]}).encode(),
}
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters=MASK)
TEXTS = st.text(CHARACTERS, min_size=1, max_size=60)
VISIBLE = st.characters(categories=["L", "N", "P", "S"], exclude_characters=MASK)
LONG_TEXTS = st.builds("{}{}{}".format, VISIBLE, st.text(CHARACTERS, min_size=PREFIX, max_size=58), VISIBLE)
"""Longer than the prefix by which a value is recognised, also without the blanks around it."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", SPELLINGS)
@given(value=TEXTS, before=st.text(max_size=20), after=st.text(max_size=20), one_text=st.booleans())
def test_no_value_survives_in_any_spelling(
    spelling: str, place: str, value: str, before: str, after: str, *, one_text: bool
) -> None:
    if place == "a line of the value":
        value = " ".join(value.splitlines())
    spelled = SPELLINGS[spelling](value)
    text = f"{before}{spelled}{after}"

    masked = Redactor([PLACES[place](value)], within=text if one_text else None).text(text)

    assert len(spelled) < SHORTEST or spelled not in masked


@given(value=st.binary(min_size=4, max_size=60))
def test_no_binary_value_survives(value: bytes) -> None:
    for spelled in (value.hex(), base64.b64encode(value).decode(), repr(value)[2:-1], quote(value, safe="")):
        assert spelled not in Redactor([value]).text(f"<{spelled}>")


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(value=LONG_TEXTS, missing=st.integers(1, 40))
def test_a_value_that_was_cut_off_is_masked_by_its_beginning(spelling: str, value: str, missing: int) -> None:
    spelled = SPELLINGS[spelling](value)
    shown = spelled[: max(PREFIX, len(spelled) - missing)]

    assert shown not in Redactor([value.encode()]).text(f"got {shown}")


@pytest.mark.parametrize("size", [PREFIX + 1, 5000, 40_000], ids=["short", "long", "longer than any text"])
@pytest.mark.parametrize("shown", range(1, PREFIX + 2))
def test_nothing_of_a_value_stands_at_the_end_of_a_text_that_is_cut(size: int, shown: int) -> None:
    value = "".join(chr(0x4E00 + number % 20_000) for number in range(size))
    text = "x" * (MAX_TEXT - shown) + value

    masked = [Redactor([value.encode()]).text(text), Redactor([value.encode()], within=text).text(text)]

    assert not set("".join(masked)) & set(value)


def test_a_value_that_is_longer_than_any_text_leaves_no_remainder() -> None:
    value = "".join(chr(0x4E00 + number) for number in range(2 * MAX_TEXT))

    assert Redactor([value.encode()]).text(f"got {value}") == "got …"


def test_values_that_overlap_leave_no_remainder() -> None:
    assert Redactor([b"abcdefgh", b"efghijklm"]).text("<abcdefghijklm>") == "<…>"


@pytest.mark.parametrize(
    ("text", "names", "shown"),
    [
        pytest.param("no app/prod/db here", ["app/prod/db"], "no app/prod/db here", id="part of a name"),
        pytest.param("no prod here", ["prod"], "no prod here", id="equal to a name"),
        pytest.param("prod is refused", ["app/db"], "… is refused", id="elsewhere"),
        pytest.param("app/prod/db: prod", ["app/prod/db"], "app/prod/db: …", id="both"),
        pytest.param("prod", [], "…", id="no names"),
        pytest.param("a/prod/b of a/prod", ["a/prod", "a/prod/b"], "a/prod/b of a/prod", id="a name within a name"),
    ],
)
def test_a_short_value_is_masked_except_in_names(text: str, names: list[str], shown: str) -> None:
    assert Redactor([b"prod"], names).text(text) == shown


@given(value=st.text("abcdef", min_size=4, max_size=7), around=st.text("/-.", min_size=1, max_size=10))
def test_a_name_that_holds_a_short_value_stays(value: str, around: str) -> None:
    name = f"{around}{value}{around}"

    assert Redactor([value.encode()], [name]).text(f'no "{name}"') == f'no "{name}"'


def test_the_texts_of_a_document_come_in_their_order_and_from_any_depth() -> None:
    deep: object = "last"
    for _ in range(100_000):
        deep = [deep]

    assert list(texts_in({"name": ["a", 1, {"b": "c"}], "d": None, "e": deep})) == ["a", "c", "last"]


def account(**members: object) -> bytes:
    """Return a credential in JSON, as a cloud issues it for an account."""
    return json.dumps({"type": "service_account", "project_id": "my-project-1", **members}).encode()


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEF\nAASC\n-----END PRIVATE KEY-----\n"


def test_the_project_of_a_credential_stays_if_the_spec_shows_it() -> None:
    value = account(private_key="MIIabcdef")
    said = "my-project-1 refuses MIIabcdef"

    assert Redactor([PartlyPublic(value, frozenset({"my-project-1"}))]).text(said) == "my-project-1 refuses …"
    assert Redactor([PartlyPublic(value, frozenset({"my-project"}))]).text(said) == "… refuses …"
    assert Redactor([value]).text(said) == "… refuses …"


@pytest.mark.parametrize(
    ("value", "proof"),
    [
        pytest.param(account(client_secret="production"), "production", id="a client secret"),
        pytest.param(account(client_secret="prod"), "prod", id="a short client secret"),
        pytest.param(account(client_secret="my-project-1"), "my-project-1", id="a client secret that is the project"),
        pytest.param(account(client_id="team-a"), "team-a", id="a member that the provider may use as a proof"),
        pytest.param(account(keys=["hunter2-hunter2"]), "hunter2-hunter2", id="a text in a list"),
        pytest.param(
            account(source={"project_id": "hunter2-hunter2"}), "hunter2-hunter2", id="a project further inside"
        ),
        pytest.param(account(audience=["hunter2-hunter2"]), "hunter2-hunter2", id="a list in place of a text"),
        pytest.param(account(private_key=PEM), "MIIEvQIBADANBgkq", id="a line of a private key"),
        pytest.param(account(private_key=PEM), "AASC", id="a short line of a private key"),
        pytest.param(account(private_key=PEM), PEM, id="a private key"),
        pytest.param(b'"hunter2-hunter2"', "hunter2-hunter2", id="JSON that is one text"),
        pytest.param(b'["hunter2-hunter2"]', "hunter2-hunter2", id="JSON without members"),
        pytest.param(b"hunter2-hunter2", "hunter2-hunter2", id="a credential that is not JSON"),
        pytest.param(b'{"project_id": "my-project-1"}', '{"project_id": "my-project-1"}', id="the whole credential"),
    ],
)
def test_a_proof_is_masked_although_the_spec_happens_to_contain_it(value: bytes, proof: str) -> None:
    """Whoever may write a store, but not read its Secret, could find out a value by writing guesses into the spec."""
    public = frozenset({proof, *proof.splitlines(), "my-project-1"})
    said = f"backend says: {proof} is refused"

    masked = Redactor([PartlyPublic(value, public)]).text(said)

    assert proof not in masked


def test_a_proof_is_masked_beside_a_name_that_contains_it() -> None:
    redactor = Redactor([PartlyPublic(account(client_secret="blue"), frozenset({"app-blue"}))], ["app-blue"])

    assert redactor.text('"app-blue" refuses blue') == '"app-blue" refuses …'


@given(line=st.text(VISIBLE, min_size=SHORTEST, max_size=60), around=st.lists(TEXTS, max_size=4))
def test_no_line_of_a_text_in_json_survives(line: str, around: list[str]) -> None:
    value = account(private_key="\n".join([*around, line]))

    masked = Redactor([PartlyPublic(value, frozenset({line}))]).text(f"line {line} is malformed")

    assert line not in masked
