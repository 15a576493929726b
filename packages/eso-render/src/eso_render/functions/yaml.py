"""toYaml and fromYaml. Both swallow errors, as in the original: an empty text, or a map with the key Error."""

from __future__ import annotations

from gotmpl.functions import ANY, STRING, Functions
from gotmpl.jsontext import kind_of
from gotmpl.values import Value

FUNCTIONS = Functions()


@FUNCTIONS.add("toYaml", params=(ANY,), cost=5)
def to_yaml(value: Value) -> str:
    from eso_render.functions.yamlwriter import YamlWriteError, write

    try:
        return write(value).removesuffix("\n")
    except YamlWriteError:
        return ""


@FUNCTIONS.add("fromYaml", params=(STRING,), cost=5)
def from_yaml(text: str) -> dict[str, Value]:
    from eso_render.functions.yamlreader import YamlReadError, read

    try:
        value = read(text)
    except YamlReadError as exc:
        return {"Error": str(exc)}
    if value is None or isinstance(value, dict):
        return value or {}
    problem = f"json: cannot unmarshal {kind_of(value)} into Go value of type map[string]interface {{}}"
    return {"Error": f"error unmarshaling JSON: while decoding JSON: {problem}"}
