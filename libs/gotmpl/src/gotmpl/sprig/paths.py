"""Slash-separated paths. The `os` twins are identical: the operator runs on Linux."""

from __future__ import annotations

from gotmpl.functions import STRING, Functions

FUNCTIONS = Functions()


@FUNCTIONS.add("clean", "osClean", params=(STRING,))
def clean(path: str) -> str:
    """Return the shortest equivalent path."""
    rooted = path.startswith("/")
    out: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part == "..":
            if out and out[-1] != "..":
                out.pop()
            elif not rooted:
                out.append(part)
        else:
            out.append(part)
    text = "/".join(out)
    return "/" + text if rooted else text or "."


@FUNCTIONS.add("base", "osBase", params=(STRING,))
def base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


@FUNCTIONS.add("dir", "osDir", params=(STRING,))
def dir_(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return clean(head + slash)


@FUNCTIONS.add("ext", "osExt", params=(STRING,))
def ext(path: str) -> str:
    name = path.rpartition("/")[2]
    _, dot, tail = name.rpartition(".")
    return dot + tail if dot else ""


@FUNCTIONS.add("isAbs", "osIsAbs", params=(STRING,))
def is_abs(path: str) -> bool:
    return path.startswith("/")
