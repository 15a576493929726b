"""Coverage-guided fuzzing of parsing and executing. Needs atheris, which no other part of the workspace does.

    python packages/gotmpl/fuzz/templates.py -max_total_time=600 [corpus folder]

Whatever the bytes, a render ends within its bounds, with text or with a TemplateError.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gotmpl"]):
    from gotmpl.builtins import FUNCTIONS
    from gotmpl.errors import TemplateError
    from gotmpl.families import Functions
    from gotmpl.run import Limits
    from gotmpl.sprig import families
    from gotmpl.template import Engine
    from gotmpl.values import StrMap, to_text

_SLOW = {"bcrypt", "htpasswd", "derivePassword", "genPrivateKey"}
ENGINE = Engine(
    Functions([(" ".join(FUNCTIONS), lambda: FUNCTIONS), *families(lambda: 0)]),
    Limits(output_bytes=2**16, steps=2000, depth=40),
)


DATA = StrMap({"a": "x\udcff\n é", "b": "", "n": "42"})


def one(raw: bytes) -> None:
    """The bytes are the template, so that templates can be the seeds of a corpus."""
    text = to_text(raw[:1000])
    if any(name in text for name in _SLOW):
        return
    try:
        output = ENGINE.render(text, DATA)
    except TemplateError:
        return
    if len(output) > 2**16:
        raise AssertionError("the output is larger than its bound")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
