"""URLs, as net/url takes them apart and puts them together."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from gotmpl.errors import FuncError, Quoted
from gotmpl.signatures import DICT, STRING, Functions
from gotmpl.values import Value, go_type, to_bytes, to_text

FUNCTIONS = Functions()

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _BadUrlError(Exception):
    """Why a URL cannot be parsed; never with more of it than the part that is wrong."""


@FUNCTIONS.add("urlParse", params=(STRING,))
def url_parse(text: str) -> dict[str, Value]:
    try:
        return _parsed(text)
    except _BadUrlError as exc:
        raise FuncError("unable to parse url: parse ", Quoted(text, "q"), f": {exc}") from None


def _parsed(text: str) -> dict[str, Value]:
    if _CONTROL.search(text):
        raise _BadUrlError("net/url: invalid control character in URL")
    rest, _, fragment = text.partition("#")
    scheme, rest = _scheme(rest)
    rest, _, query = rest.partition("?")
    parts: dict[str, Value] = {
        "scheme": scheme.lower(),
        "opaque": "",
        "userinfo": "",
        "host": "",
        "hostname": "",
        "path": "",
        "query": query,
        "fragment": _unescaped(fragment),
    }
    if scheme and not rest.startswith("/"):
        return parts | {"opaque": rest} if rest else parts
    if not scheme and not rest.startswith("/") and ":" in rest.partition("/")[0]:
        raise _BadUrlError("first path segment in URL cannot contain colon")
    if rest.startswith("//") and not (rest.startswith("///") and not scheme):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        parts |= _authority(authority)
    return parts | {"path": _unescaped(rest)}


def _scheme(text: str) -> tuple[str, str]:
    before, colon, after = text.partition(":")
    if not colon or "/" in before or "?" in before:
        return "", text
    if not before:
        raise _BadUrlError("missing protocol scheme")
    return (before, after) if _SCHEME.fullmatch(before) else ("", text)


def _authority(authority: str) -> dict[str, Value]:
    userinfo, at, host = authority.rpartition("@")
    if at:
        _unescaped(userinfo)
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise _BadUrlError("missing ']' in host")
        port, hostname = host[closing + 1 :], host[1:closing]
    else:
        hostname, colon, number = host.partition(":")
        port = colon + number
    if port and not (port[0] == ":" and (port[1:] == "" or port[1:].isdecimal())):
        raise _BadUrlError(f'invalid port "{port}" after host')
    if " " in host:
        raise _BadUrlError("invalid character in host name")
    return {"userinfo": userinfo if at else "", "host": _unescaped(host), "hostname": _unescaped(hostname)}


def _unescaped(text: str) -> str:
    bad = _BAD_ESCAPE.search(text)
    if bad:
        raise _BadUrlError(f'invalid URL escape "{bad.group()}"')
    return to_text(unquote_to_bytes(to_bytes(text))) if "%" in text else text


@FUNCTIONS.add("urlJoin", params=(DICT,))
def url_join(parts: dict[str, Value] | None) -> str:
    given = {name: _text(parts or {}, name) for name in ("scheme", "opaque", "host", "path", "query", "fragment")}
    userinfo = _text(parts or {}, "userinfo")
    out = f"{given['scheme']}:" if given["scheme"] else ""
    if given["opaque"]:
        out += given["opaque"]
    else:
        out += _joined_path(given, userinfo)
    out += f"?{given['query']}" if given["query"] else ""
    return out + (f"#{_escaped(given['fragment'])}" if given["fragment"] else "")


def _joined_path(given: dict[str, str], userinfo: str) -> str:
    path = _escaped(given["path"])
    out = ""
    if given["scheme"] or given["host"] or userinfo:
        if given["host"] or path or userinfo:
            out = "//" if given["host"] or userinfo else ""
        out += f"{userinfo}@" if userinfo else ""
        out += given["host"]
    if path and not path.startswith("/") and given["host"]:
        return f"{out}/{path}"
    return out + path


def _escaped(text: str) -> str:
    return quote(to_bytes(text), safe="/$&+,:;=@!'()*~")


def _text(parts: dict[str, Value], name: str) -> str:
    value = parts.get(name, "")
    if not isinstance(value, str):
        raise FuncError(f"unable to parse {name} key, must be of type string, but {go_type(value)} found")
    return value
