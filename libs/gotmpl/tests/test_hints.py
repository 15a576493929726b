"""Errors of templates say what the author may have meant."""

from __future__ import annotations

import pytest

from gotmpl.builtins import FUNCTIONS
from gotmpl.errors import TemplateError
from gotmpl.functions import LazyFunctions
from gotmpl.run import TemplateLimits
from gotmpl.sprig import families
from gotmpl.template import Engine
from gotmpl.values import StrMap

EVERYTHING = LazyFunctions([(" ".join(FUNCTIONS), lambda: FUNCTIONS), *families(lambda: 0)])
DATA = StrMap({"user": "ada", "password": "pw", "json": '{"inner": "hidden"}'})


def hint(template: str, data: StrMap = DATA) -> str:
    with pytest.raises(TemplateError) as caught:
        Engine(EVERYTHING, TemplateLimits()).render(template, data)
    return caught.value.hint


@pytest.mark.parametrize(
    ("template", "meant"),
    [
        pytest.param("{{ base64encode .user }}", "did you mean b64enc?", id="as Terraform calls it"),
        pytest.param("{{ .user | b64decode }}", "did you mean b64dec?", id="as Ansible calls it"),
        pytest.param("{{ .user | toUpper }}", "did you mean upper?", id="a longer name"),
        pytest.param("{{ .user | TOJSON }}", "did you mean toJson?", id="other letters"),
        pytest.param('{{ trimPrefx "a" .user }}', "did you mean trimPrefix?", id="a typing mistake"),
        pytest.param("{{ qqqqqqqq }}", "", id="nothing like it"),
        pytest.param("{{ .pasword }}", "did you mean password?", id="a key that is nearly there"),
        pytest.param("{{ $.pasword }}", "did you mean password?", id="a key of the root"),
        pytest.param("{{ .token }}", "the keys are json, password, user", id="a key that is not there"),
        pytest.param("{{ (.json | fromJson).iner }}", "", id="keys of a decoded value are part of the value"),
        pytest.param(
            '{{ template "x" (fromJson .json) }}{{ define "x" }}{{ .iner }}{{ end }}', "", id="even as a root"
        ),
        pytest.param('{{ fail "no" }}', "", id="other errors"),
    ],
)
def test_an_error_hints_at_what_was_meant(template: str, meant: str) -> None:
    assert hint(template) == meant


def test_a_few_keys_are_listed_and_the_rest_is_counted() -> None:
    many = StrMap({f"entry-{number:02}": "" for number in range(25)} | {"a" * 300: ""})

    said = hint("{{ .token }}", many)

    assert said.startswith("the keys are aaa")
    assert said.endswith("entry-08 and 16 more")
    assert len(said) < 250


def test_without_keys_it_says_so() -> None:
    assert hint("{{ .token }}", StrMap({})) == "there are no keys"
