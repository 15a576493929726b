"""Times, durations, months and versions in templates: numbers where Go has numbers, and Go's messages for misuse."""

from __future__ import annotations

import pytest

from eso_render import RenderError, render_text

DAY = '(toDate "2006-01-02" "2024-05-06")'
NO_TIME = f"({DAY}.Sub {DAY})"
NEXT = '((semver "v1.2.3-rc.1").IncMinor)'


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(f"{{{{ {DAY}.Month | int }}}} {{{{ add1 {DAY}.Weekday }}}}", "5 2", id="months and days convert"),
        pytest.param(f'{{{{ {DAY}.Month | int | printf "%02d" }}}}', "05", id="a month in two digits"),
        pytest.param(
            f'{{{{ div ({DAY}.Sub (toDate "2006-01-02" "2024-05-01")) 3600000000000 }}}}', "120", id="hours between"
        ),
        pytest.param(f"{{{{ float64 {DAY}.Month }}}} {{{{ ceil {DAY}.Month }}}}", "5 5", id="real numbers"),
        pytest.param(f"{{{{ if {NO_TIME} }}}}some{{{{ else }}}}none{{{{ end }}}}", "none", id="no time is false"),
        pytest.param(f'{{{{ default "d" {NO_TIME} }}}} {{{{ not {NO_TIME} }}}}', "d true", id="no time is empty"),
        pytest.param(f'{{{{ printf "%f" {DAY}.Month }}}}', "%!f(time.Month=5)", id="a verb that does not fit"),
        pytest.param(f'{{{{ printf "%#v %3d" {DAY}.Month {DAY}.Weekday }}}}', "5   1", id="verbs that fit"),
        pytest.param(f"{{{{ {DAY}.In {DAY}.Location }}}}", "2024-05-06 00:00:00 +0000 UTC", id="in a place"),
        pytest.param('{{ durationRound (toDate "x" "y") }}', "292y", id="the longest duration"),
        pytest.param(
            f"{{{{ typeOf {NEXT} }}}} {{{{ kindOf {NEXT} }}}}", "semver.Version struct", id="a version's type"
        ),
        pytest.param(f"{{{{ eq {NEXT} {NEXT} }}}} {{{{ {NEXT}.IncPatch }}}}", "true 1.3.1", id="versions as values"),
        pytest.param(
            f'{{{{ printf "%#v" {NEXT} }}}}',
            'semver.Version{major:0x1, minor:0x3, patch:0x0, pre:"", metadata:"", original:"v1.3.0"}',
            id="the letter v stays",
        ),
        pytest.param('{{ (semver "1.2.3").Equal nil }}', "false", id="no version equals none"),
    ],
)
def test_an_object_renders_as_in_go(template: str, expected: str) -> None:
    assert render_text(template, {}).decode() == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(f"{{{{ {DAY}.Format nil }}}}", "at <nil>: cannot assign nil to string", id="nil for a text"),
        pytest.param(f"{{{{ {DAY}.Before nil }}}}", "cannot assign nil to time.Time", id="nil for a moment"),
        pytest.param(
            f"{{{{ {DAY}.AddDate (list) (dict) 1 }}}}",
            "at <list>: wrong type for value; expected int; got []interface {}",
            id="the first bad argument",
        ),
        pytest.param(
            f"{{{{ {DAY}.Clock 1 }}}}", "wrong number of args for Clock: want 0 got 1", id="too many arguments"
        ),
        pytest.param(
            f'{{{{ {DAY}.In "Europe/Oslo" }}}}',
            """at <"Europe/Oslo">: can't handle "Europe/Oslo" for arg of type *time.Location""",
            id="a place by its name",
        ),
        pytest.param(f"{{{{ {DAY}.In nil }}}}", "error calling In: time: missing Location", id="no place"),
        pytest.param(
            '{{ (semver "1.2.3").major }}',
            "major is an unexported field of struct type *semver.Version",
            id="a small letter instead of a capital",
        ),
        pytest.param(
            f"{{{{ {DAY}.loc }}}}", "loc is an unexported field of struct type time.Time", id="a private field"
        ),
        pytest.param(
            f'{{{{ {NEXT}.Compare (semver "1") }}}}',
            "can't evaluate field Compare in type semver.Version",
            id="a version that is a value compares with nothing",
        ),
        pytest.param(
            f'{{{{ (semver "1").Compare {NEXT} }}}}',
            "wrong type for value; expected *semver.Version; got semver.Version",
            id="nor does anything compare with it",
        ),
        pytest.param(
            '{{ (semver "1").LessThan nil }}',
            "error calling LessThan: runtime error: invalid memory address or nil pointer dereference",
            id="less than nothing",
        ),
        pytest.param(f"{{{{ upper {NEXT} }}}}", "expected string; got semver.Version", id="a version is no text"),
    ],
)
def test_misuse_of_an_object_has_gos_words(template: str, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        render_text(template, {})

    assert message in str(caught.value)
