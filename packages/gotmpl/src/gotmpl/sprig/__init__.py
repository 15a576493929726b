"""The Sprig functions, one family in a file."""

from gotmpl.signatures import Functions
from gotmpl.sprig import (
    crypto,
    defaults,
    dicts,
    encoding,
    json,
    lists,
    numbers,
    paths,
    random,
    reflect,
    regexes,
    semver,
    strings,
    urls,
    words,
)

FUNCTIONS = Functions()
for _family in (
    strings,
    words,
    lists,
    dicts,
    defaults,
    numbers,
    encoding,
    crypto,
    json,
    paths,
    random,
    reflect,
    regexes,
    semver,
    urls,
):
    FUNCTIONS.update(_family.FUNCTIONS)
