"""Coverage-guided fuzzing of parsing and executing. Needs atheris, which no other part of the workspace uses.

python libs/gotmpl/fuzz/templates.py -max_total_time=600 [corpus folder]

For any bytes, a render must end within its limits, with text or with a TemplateError.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gotmpl"]):
    from gotmpl.builtins import FUNCTIONS
    from gotmpl.errors import TemplateError
    from gotmpl.functions import LazyFunctions
    from gotmpl.run import TemplateLimits
    from gotmpl.sprig import families
    from gotmpl.template import Engine
    from gotmpl.values import StrMap, to_text

_SLOW = {"bcrypt", "htpasswd", "derivePassword", "genPrivateKey"}
ENGINE = Engine(
    LazyFunctions([(" ".join(FUNCTIONS), lambda: FUNCTIONS), *families(lambda: 0)]),
    TemplateLimits(output_bytes=2**16, steps=2000, depth=40),
)


DATA = StrMap({"a": "x\udcff\n é", "b": "", "n": "42"})


def one(raw: bytes) -> None:
    """Use the bytes as the template, so that templates can seed a corpus."""
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
