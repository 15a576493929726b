"""Template text -> tokens.

The whole text is read at once into a list: templates are small, and a list lets the parser look ahead freely. Positions
are indexes into the text; byte columns, which Go reports, are computed only when an error needs one.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from gotmpl.quoting import quote, unicode_name


class Kind:
    """What a token is. Plain numbers: members of an Enum are slow to read, and the parser asks for every token."""

    ERROR = 0
    BOOL = 1
    CHAR = 2
    CHAR_CONSTANT = 3
    COMPLEX = 4
    ASSIGN = 5
    DECLARE = 6
    EOF = 7
    FIELD = 8
    IDENTIFIER = 9
    LEFT_DELIM = 10
    LEFT_PAREN = 11
    NUMBER = 12
    PIPE = 13
    RAW_STRING = 14
    RIGHT_DELIM = 15
    RIGHT_PAREN = 16
    STRING = 17
    TEXT = 18
    VARIABLE = 19
    # Every kind from here on is a keyword and shows as <word> in messages.
    BLOCK = 20
    BREAK = 21
    CONTINUE = 22
    DOT = 23
    DEFINE = 24
    ELSE = 25
    END = 26
    IF = 27
    NIL = 28
    RANGE = 29
    TEMPLATE = 30
    WITH = 31
    SHOWN_FIELD = 32
    """A whole action that only shows a field of the dot, `{{ .name }}`: the most common one."""


KEYWORDS = {
    "block": Kind.BLOCK,
    "break": Kind.BREAK,
    "continue": Kind.CONTINUE,
    "define": Kind.DEFINE,
    "else": Kind.ELSE,
    "end": Kind.END,
    "if": Kind.IF,
    "nil": Kind.NIL,
    "range": Kind.RANGE,
    "template": Kind.TEMPLATE,
    "with": Kind.WITH,
    "true": Kind.BOOL,
    "false": Kind.BOOL,
}


class Token:
    __slots__ = ("kind", "pos", "spaced", "text")

    def __init__(self, kind: int, pos: int, text: str, spaced: bool = False) -> None:  # noqa: FBT001, FBT002 made for every token, so nothing but positions
        self.kind = kind
        self.pos = pos
        self.text = text
        self.spaced = spaced
        """White space stands before it."""

    def __str__(self) -> str:
        if self.kind == Kind.EOF:
            return "EOF"
        if self.kind == Kind.ERROR:
            return self.text
        if self.kind >= Kind.BLOCK:
            return f"<{self.text}>"
        if len(self.text.encode("utf-8", "surrogateescape")) > 10:
            return quote(self.text[:10]) + "..."
        return quote(self.text)


_SPACES = " \t\r\n"
_ESCAPED = r"(?:[^\\{q}\n]|\\[^\n])*"
_WORD = r"[A-Za-z_][A-Za-z0-9_]*+"
_INSIDE = (
    r"[ \t\r\n]*+(?:"
    r"(?P<field>\.{word}{end})"
    r"|(?P<word>{word}{end})"
    r"|(?P<variable>\$[A-Za-z0-9_]*+{end})"
    r"|(?P<trim>(?<=[ \t\r\n])-{right})"
    r"|(?P<close>{right})"
    r"|(?P<string>\"" + _ESCAPED.format(q='"') + r"\")"
    r"|(?P<raw>`[^`]*`)"
    r"|(?P<symbol>[=|()])"
    r"|(?P<integer>[0-9]++(?=[ \t\r\n|)]))"
    r"|(?P<char>'" + _ESCAPED.format(q="'") + r"')"
    r"|(?P<declare>:=)"
    r"|(?P<number>[+-]?(?:[0-9]|\.[0-9])|[+-])"
    r")"
)
"""The next token of an action with the spaces before it. A name must be followed by something that may follow one."""
_USUAL = (
    r"([ \t\r\n]*+)(\.(?:{word})?+{end}|{word}{end}|\$[A-Za-z0-9_]*+{end}|\"(?:[^\\\"\n]|\\[^\n])*+\"|`[^`]*+`|[=|(),]"
    r"|[0-9]++(?=[ \t\r\n|)]|\Z)|:=)"
)
"""The tokens that nearly every action is made of: a part of what _INSIDE knows, as the spaces and the word."""
_NUMBER = re.compile(
    r"[+-]?(?:"
    r"0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?"
    r")i?"
)
_SYMBOLS = {"=": Kind.ASSIGN, "|": Kind.PIPE, "(": Kind.LEFT_PAREN, ")": Kind.RIGHT_PAREN}
_TERMINATORS = frozenset(" \t\r\n.,|:)(")


def is_alphanumeric(char: str) -> bool:
    """Go's letter, decimal digit or underscore; narrower than str.isalnum, which takes every numeral."""
    return char == "_" or char.isalpha() or char.isdecimal()


@lru_cache(maxsize=16)
def _inside(right: str) -> re.Pattern[str]:
    escaped = re.escape(right)
    end = rf"(?=[ \t\r\n.,|:()]|{escaped}|\Z)"
    pattern = _INSIDE.replace("{word}", _WORD).replace("{end}", end).replace("{right}", escaped)
    return re.compile(pattern)


@cache
def _usual() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """In the default delimiters: an action that is only a field, one of usual tokens, and one of those tokens."""
    token = _USUAL.replace("{word}", _WORD).replace("{end}", r"(?=[ \t\r\n.,|:()]|}}|\Z)")
    tokens = token.replace("([", "(?:[", 1).replace("(\\.", "(?:\\.", 1)
    return (
        re.compile(rf"[ \t\r\n]*+(\.{_WORD})[ \t\r\n]*+}}}}"),
        re.compile(rf"((?:{tokens})*+)([ \t\r\n]*+)(-(?<=[ \t\r\n]-))?+}}}}"),
        re.compile(token),
    )


class _Broken(Exception):  # noqa: N818 not an error of ours yet: the parser decides what to say about it
    """The text ends here with an error token."""

    def __init__(self, pos: int, message: str) -> None:
        super().__init__(message)
        self.token = Token(Kind.ERROR, pos, message)


class Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self._text = text
        self._left = left
        self._right = right
        self._inside = _inside(right).match
        self._usual = _usual()
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        """Every token; the last one is EOF or ERROR."""
        pos = 0
        try:
            while pos <= len(self._text):
                pos = self._outside(pos)
        except _Broken as broken:
            self._tokens.append(broken.token)
        return self._tokens

    def _outside(self, pos: int) -> int:
        """Text up to the next action, then that action. Returns where text goes on; past the end, nothing is left."""
        text, left = self._text, self._left
        start = text.find(left, pos)
        if start < 0:
            if pos < len(text):
                self._tokens.append(Token(Kind.TEXT, pos, text[pos:]))
            self._tokens.append(Token(Kind.EOF, len(text), ""))
            return len(text) + 1
        inside = start + len(left)
        trims = text[inside : inside + 1] == "-" and text[inside + 1 : inside + 2] in _SPACES and inside + 1 < len(text)
        before = text[pos:start].rstrip(_SPACES) if trims else text[pos:start]
        if before:
            self._tokens.append(Token(Kind.TEXT, pos, before))
        after = inside + 2 if trims else inside
        if text.startswith("/*", after):
            return self._comment(start, after)
        usual = self._usual_action(start, after) if self._right == "}}" else None
        return usual or self._action(start, after)

    def _usual_action(self, start: int, pos: int) -> int | None:
        """What _action does, quicker, for an action of usual tokens; None if it has others or a lone parenthesis."""
        field, whole, one = self._usual
        shown = field.match(self._text, pos)
        if shown is not None:
            self._tokens.append(Token(Kind.SHOWN_FIELD, shown.start(1), shown[1]))
            return shown.end()
        found = whole.match(self._text, pos)
        if found is None:
            return None
        tokens = [Token(Kind.LEFT_DELIM, start, self._left)]
        append = tokens.append
        depth = 0
        for spaces, word in one.findall(self._text, pos, found.end(1)):
            kind = _WORDS.get(word) or _STARTS.get(word[0], _NAME)
            if kind == _LEFT_PAREN:
                depth += 1
            elif kind == _RIGHT_PAREN:
                depth -= 1
                if depth < 0:
                    return None
            pos += len(spaces)
            append(Token(kind, pos, word, spaces != ""))
            pos += len(word)
        if depth:
            return None
        end = found.end()
        append(Token(Kind.RIGHT_DELIM, end - 2, "}}", found[2] != ""))
        self._tokens += tokens
        return end if found[3] is None else self._past_spaces(end)

    def _comment(self, start: int, pos: int) -> int:
        text, right = self._text, self._right
        end = text.find("*/", pos + 2)
        if end < 0:
            raise _Broken(start, "unclosed comment")
        end += 2
        if text.startswith(right, end):
            return end + len(right)
        if text[end : end + 1] in _SPACES and text.startswith("-" + right, end + 1):
            return self._past_spaces(end + 2 + len(right))
        raise _Broken(start, "comment ends before closing delimiter")

    def _past_spaces(self, pos: int) -> int:
        text = self._text
        while pos < len(text) and text[pos] in _SPACES:
            pos += 1
        return pos

    def _action(self, start: int, pos: int) -> int:
        """The tokens of one action, whatever they are."""
        text, tokens, inside = self._text, self._tokens, self._inside
        append = tokens.append
        append(Token(Kind.LEFT_DELIM, start, self._left))
        depth = 0
        while True:
            found = inside(text, pos)
            group = found.lastgroup if found else None
            if found is None or group is None:
                start = self._past_spaces(pos)
                pos, spaced = self._unusual(start), start > pos
                tokens[-1].spaced = spaced
                continue
            word, end = found[group], found.end()
            start = end - len(word)
            spaced = start > pos
            pos = end
            kind = _KINDS.get(group)
            if kind is not None:
                append(Token(kind, start, word, spaced))
            elif group == "word":
                append(Token(KEYWORDS.get(word, _NAME), start, word, spaced))
            elif group == "symbol":
                depth += 1 if word == "(" else -1 if word == ")" else 0
                if depth < 0:
                    raise _Broken(start, "unexpected right paren")
                append(Token(_SYMBOLS[word], start, word, spaced))
            elif group == "number":
                pos = self._number(start)
                tokens[-1].spaced = spaced
            else:
                if depth:
                    raise _Broken(start, "unclosed left paren")
                append(Token(Kind.RIGHT_DELIM, end - len(self._right), self._right, spaced))
                return self._past_spaces(end) if group == "trim" else end

    def _ends_well(self, pos: int) -> bool:
        text = self._text
        return pos >= len(text) or text[pos] in _TERMINATORS or text.startswith(self._right, pos)

    def _number(self, pos: int) -> int:
        end = self._scan_number(pos)
        kind = Kind.NUMBER
        if self._text[end : end + 1] in {"+", "-"}:
            second = self._scan_number(end, pos)
            if self._text[second - 1] != "i":
                raise _Broken(pos, f"bad number syntax: {quote(self._text[pos:second])}")
            kind, end = Kind.COMPLEX, second
        self._tokens.append(Token(kind, pos, self._text[pos:end]))
        return end

    def _scan_number(self, pos: int, start: int | None = None) -> int:
        """The end of a number at `pos`, the second part of one that began at `start`."""
        start = pos if start is None else start
        found = _NUMBER.match(self._text, pos)
        end = found.end() if found else pos
        following = self._text[end : end + 1]
        if following and is_alphanumeric(following):
            raise _Broken(start, f"bad number syntax: {quote(self._text[start : end + 1])}")
        return end

    def _unusual(self, pos: int) -> int:
        """What the table does not know: names beyond ASCII, lone dots, printable characters, and every mistake."""
        text = self._text
        if pos >= len(text):
            raise _Broken(pos, "unclosed action")
        char = text[pos]
        if char == "." and pos + 1 == len(text):
            self._tokens.append(Token(Kind.NUMBER, pos, "."))  # a dot may start a number, and nothing says it does not
            return pos + 1
        if char in "\"`'":
            raise _Broken(pos, _UNTERMINATED[char])
        if char == ":":
            raise _Broken(pos, "expected :=")
        if char in ".$" or is_alphanumeric(char):
            return self._name(pos)
        if " " <= char <= "~":
            self._tokens.append(Token(Kind.CHAR, pos, char))
            return pos + 1
        raise _Broken(pos, f"unrecognized character in action: {unicode_name(char)}")

    def _name(self, pos: int) -> int:
        text = self._text
        end = pos + 1 if text[pos] in ".$" else pos
        while end < len(text) and is_alphanumeric(text[end]):
            end += 1
        if not self._ends_well(end):
            raise _Broken(pos, f"bad character {unicode_name(text[end])}")
        word = text[pos:end]
        kind = {".": "field", "$": "variable"}.get(word[0], "word")
        self._tokens.append(Token(Kind.DOT if word == "." else _kind(kind, word), pos, word))
        return end


_NAME, _LEFT_PAREN, _RIGHT_PAREN = Kind.IDENTIFIER, Kind.LEFT_PAREN, Kind.RIGHT_PAREN
_WORDS = {**KEYWORDS, **_SYMBOLS, ".": Kind.DOT, ",": Kind.CHAR, ":=": Kind.DECLARE}
_STARTS = {
    ".": Kind.FIELD,
    "$": Kind.VARIABLE,
    '"': Kind.STRING,
    "`": Kind.RAW_STRING,
    **dict.fromkeys("0123456789", Kind.NUMBER),
}
"""What the first character of any other usual token tells; the rest are names of functions."""
_UNTERMINATED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}
_KINDS = {
    "field": Kind.FIELD,
    "variable": Kind.VARIABLE,
    "string": Kind.STRING,
    "raw": Kind.RAW_STRING,
    "char": Kind.CHAR_CONSTANT,
    "integer": Kind.NUMBER,
    "declare": Kind.DECLARE,
}


def _kind(group: str | None, word: str) -> int:
    if group == "word":
        return KEYWORDS.get(word, Kind.IDENTIFIER)
    return _KINDS[group or ""]
