"""URLs, parsed and built as net/url does.

A URL often contains a password, so an error shows none of it unless the template itself contains the URL.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import quote, unquote_to_bytes

from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import DICT, STRING, Functions
from gotmpl.values import Value, go_kind, to_bytes, to_text

FUNCTIONS = Functions()

_STARTS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_HOST_ESCAPE = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")
_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9_.~!$&'()*+,;=:\[\]<>\"%-]", re.ASCII)
_USERINFO = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:@-]*\Z")
_PORT = re.compile(r"(?::[0-9]*)?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_UNRESERVED = "-_.~"
_IN_PATH = _UNRESERVED + "$&+,/:;=@"
_IN_USER = _UNRESERVED + "$&+,;="
_IN_HOST = _UNRESERVED + "!$&'()*+,;=:[]<>\""
_IN_FRAGMENT = _UNRESERVED + "$&+,/:;=@?!()*"


class _BadUrlError(Exception):
    """Why a URL cannot be parsed; quoted parts of the URL are Quoted."""

    def __init__(self, *parts: str | Quoted) -> None:
        super().__init__("bad URL")
        self.parts = parts


def _escaped(text: str, safe: str) -> str:
    return quote(to_bytes(text), safe=safe)


def _unescaped(text: str, whole: str) -> str:
    bad = _BAD_ESCAPE.search(text)
    if bad:
        raise _BadUrlError("invalid URL escape ", Quoted(bad.group(), "q", origin=whole))
    return to_text(unquote_to_bytes(to_bytes(text))) if "%" in text else text


@FUNCTIONS.add("urlParse", params=(STRING,))
def url_parse(text: str) -> dict[str, Value]:
    try:
        return _parsed(text)
    except _BadUrlError as exc:
        shown = Quoted(text.partition("#")[0], "q", origin=text)
        raise FuncError("unable to parse url: parse ", shown, ": ", *exc.parts) from None


def _parsed(whole: str) -> dict[str, Value]:
    text, _, fragment = whole.partition("#")
    parts: dict[str, Value] = dict.fromkeys(("opaque", "userinfo", "host", "hostname", "path"), "")
    if _CONTROL.search(text):
        raise _BadUrlError("net/url: invalid control character in URL")
    if text == "*":
        return parts | {"path": "*", "scheme": "", "query": "", "fragment": _unescaped(fragment, whole)}
    scheme, rest = _scheme(text)
    rest, _, query = rest.partition("?")
    parts |= {"scheme": scheme.lower(), "query": query}
    if not rest.startswith("/"):
        if scheme:
            return parts | {"opaque": rest, "fragment": _unescaped(fragment, whole)}
        if ":" in rest.partition("/")[0]:
            raise _BadUrlError("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        parts |= _authority(scheme.lower(), authority, whole)
    parts["path"] = _unescaped(rest, whole)
    return parts | {"fragment": _unescaped(fragment, whole)}


def _scheme(text: str) -> tuple[str, str]:
    found = _STARTS_SCHEME.match(text)
    if found is None:
        return "", text
    if found.group() == ":":
        raise _BadUrlError("missing protocol scheme")
    return found.group()[:-1], text[found.end() :]


def _authority(scheme: str, authority: str, whole: str) -> dict[str, Value]:
    userinfo, at, written = authority.rpartition("@")
    host = _host(scheme, written, whole)
    if at and not _USERINFO.match(userinfo):
        raise _BadUrlError("net/url: invalid userinfo")
    return {"userinfo": _user(userinfo, whole) if at else "", "host": host, "hostname": _hostname(host)}


def _user(userinfo: str, whole: str) -> str:
    """Return name and password in normal form."""
    name, colon, password = userinfo.partition(":")
    shown = _escaped(_unescaped(name, whole), _IN_USER)
    return f"{shown}:{_escaped(_unescaped(password, whole), _IN_USER)}" if colon else shown


def _hostname(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if colon and not port.strip("0123456789"):
        host = name
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _host(scheme: str, host: str, whole: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise _BadUrlError("invalid IP-literal")
    if bracket == 0:
        return _ip_literal(host, whole)
    at = host.find(":") if scheme in {"http", "https"} else host.rfind(":")
    if at >= 0:
        _check_port(host[at:], whole)
    return _host_text(host, whole)


def _check_port(port: str, whole: str) -> None:
    if not _PORT.match(port):
        raise _BadUrlError("invalid port ", Quoted(port, "q", origin=whole), " after host")


def _host_text(host: str, whole: str) -> str:
    for at, char in enumerate(host):
        if char == "%":
            bad = _BAD_ESCAPE.match(host, at) or _HOST_ESCAPE.match(host, at)
            if bad:
                raise _BadUrlError("invalid URL escape ", Quoted(bad.group(), "q", origin=whole))
        elif char.isascii() and _NOT_IN_HOST.match(char):
            raise _BadUrlError("invalid character ", Quoted(char, "q", origin=whole), " in host name")
    return _unescaped(host, whole)


def _ip_literal(host: str, whole: str) -> str:
    closing = host.rfind("]")
    if closing < 0:
        raise _BadUrlError("missing ']' in host")
    _check_port(host[closing + 1 :], whole)
    name, zone_mark, zone = host[1:closing].partition("%25")
    address = _host_text(name, whole)
    try:
        IPv6Address(address)
    except AddressValueError:
        raise _BadUrlError("invalid host: ParseAddr(", Quoted(address, "q", origin=whole), ")") from None
    zone_text = _unescaped(zone_mark + zone, whole)
    return f"[{address}{zone_text}]{host[closing + 1 :]}"


@FUNCTIONS.add("urlJoin", params=(DICT,))
def url_join(parts: dict[str, Value] | None) -> str:
    given = {name: _text(parts or {}, name) for name in ("scheme", "host", "path", "query", "opaque", "fragment")}
    userinfo = _text(parts or {}, "userinfo")
    user = _parsed_user(userinfo) if userinfo else None
    out = f"{given['scheme']}:" if given["scheme"] else ""
    out += given["opaque"] or _hierarchy(given, user, starts=not out)
    out += f"?{given['query']}" if given["query"] else ""
    return out + (f"#{_escaped(given['fragment'], _IN_FRAGMENT)}" if given["fragment"] else "")


def _parsed_user(userinfo: str) -> str | None:
    """Return the userinfo as it would be parsed inside a URL, which may leave nothing of it."""
    url = f"proto://{userinfo}@host"
    try:
        parsed = _parsed(url)
    except _BadUrlError as exc:
        shown = Quoted(f'"{url}"', origin=userinfo)
        raise FuncError("unable to parse userinfo in dict: parse ", shown, ": ", *exc.parts) from None
    authority = url.partition("#")[0].partition("?")[0][len("proto://") :].partition("/")[0]
    return str(parsed["userinfo"]) if "@" in authority else None


def _hierarchy(given: dict[str, str], user: str | None, *, starts: bool) -> str:
    """Build authority and path."""
    host, path = given["host"], given["path"]
    out = ""
    if not starts or host or user is not None:
        out = "//" if host or path or user is not None else ""
        out += f"{user}@" if user is not None else ""
        out += _escaped(host, _IN_HOST)
    shown = path if path == "*" else _escaped(path, _IN_PATH)
    if shown and shown[0] != "/" and host:
        out += "/"
    if starts and not out and ":" in shown.partition("/")[0]:
        out = "./"
    return out + shown


def _text(parts: dict[str, Value], name: str) -> str:
    value = parts.get(name, "")
    if value is None:
        raise FuncError("runtime error: invalid memory address or nil pointer dereference")
    if not isinstance(value, str):
        raise FuncError(f"unable to parse {name} key, must be of type string, but {go_kind(value)} found")
    return value
