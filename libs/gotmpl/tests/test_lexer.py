"""The fast path for usual actions gives the same tokens as the thorough one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gotmpl.lexer import Kind, Token, _Lexer, tokens

USUAL = [
    *(" ", " ", "\n", ".", ".a", "$", "$x", "_x", "foo", "end", "nil", '"s"', r'"a\"b"', "`r`"),
    *("|", "(", ")", ")(", ",", ":=", "=", "5"),
]
UNUSUAL = ["{{", "}}", "-", "..", '"', "`", "'c'", ":", "%", "/*", "*/", "5.5", ".5", "+", "0x1F", "i", "é", ".é"]
INSIDES = st.one_of(
    st.lists(st.sampled_from(USUAL), max_size=6).map(" ".join),
    st.lists(st.sampled_from(USUAL + UNUSUAL), max_size=12).map("".join),
)


class ThoroughLexer(_Lexer):
    def _usual_action(self, start: int, pos: int) -> None:
        del start, pos


@given(INSIDES, st.sampled_from(["}}", " -}}", " }} tail", ""]))
def test_an_action_of_usual_tokens_reads_the_same_as_any_other(inside: str, end: str) -> None:
    text = "{{" + inside + end

    quick, thorough = tokens(text, "{{", "}}"), ThoroughLexer(text, "{{", "}}").tokens()

    assert _described(quick) == _described(thorough)


def _described(tokens: list[Token]) -> list[tuple[object, ...]]:
    """Return every token; an action that only shows a field is one entry, whichever path read it."""
    out: list[tuple[object, ...]] = []
    for token in tokens:
        out.append(token[:3] if token[0] == Kind.SHOWN_FIELD else token)
        if [entry[0] for entry in out[-3:]] == [Kind.LEFT_DELIM, Kind.FIELD, Kind.RIGHT_DELIM]:
            out[-3:] = [(Kind.SHOWN_FIELD, *out[-2][1:3])]
    return out
