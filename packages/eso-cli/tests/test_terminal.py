"""What the command prints: text of others cannot control a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eso_cli.loglines import LogLines, Shown
from eso_cli.plan import lines
from eso_cli.render import RenderOptions, run
from eso_cli.terminal import echo, printable
from eso_tools.plan.differences import Change, KeyChange
from eso_tools.plan.plan import Plan, PushPlan, TargetPlan, Unchecked
from kubebase.clock import SystemClock

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202e\r\x1b[31m"
SAFE = r"\x1b]0;owned\x07\x9b2J\u202e\r\x1b[31m"


def test_control_characters_are_escaped_and_lines_and_tabs_stay(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"a{HOSTILE}\n\tb")
    echo(f"c{HOSTILE}", err=True, nl=False)

    printed = capsys.readouterr()
    assert printed.out == f"a{SAFE}\n\tb\n"
    assert printed.err == f"c{SAFE}"


def test_only_colours_pass_in_a_coloured_text(capsys: pytest.CaptureFixture[str]) -> None:
    echo("\x1b[31m✗\x1b[0m a\x1b[2J\x07", coloured=True)

    assert capsys.readouterr().out == "✗ a\\x1b[2J\\x07\n"  # it is not a terminal, so that colours are removed


def test_a_name_of_bytes_that_are_no_text_is_shown() -> None:
    assert printable("a\udcffb") == r"a\udcffb"


def test_a_page_of_a_plan_escapes_every_name_and_message() -> None:
    place, key = (("", f"Secret{HOSTILE}"), f"app{HOSTILE}", f"name{HOSTILE}"), KeyChange(f"k{HOSTILE}", Change.CREATE)
    plan = Plan(
        (TargetPlan(place, (f"es{HOSTILE}",), (key,), (f"note{HOSTILE}",)),),
        (PushPlan(f"app{HOSTILE}", f"ps{HOSTILE}", f"store{HOSTILE}", f"r{HOSTILE}", Change.REMOVE),),
        unchecked=(Unchecked("ExternalSecret", f"app{HOSTILE}", f"x{HOSTILE}", f"why{HOSTILE}"),),
        notes=(f"note{HOSTILE}",),
        unsettled=f"late{HOSTILE}",
    )

    page = "\n".join(lines(plan))

    for colour in ("\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"):
        page = page.replace(colour, "")
    assert page.replace("\n", "").isprintable()
    assert page.count("]0;owned") == 14


def test_a_rendered_object_and_a_failed_template_escape_what_files_contain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"target": {"template": {"data": {f"k{HOSTILE}": "{{ .a", "b": "{{ .a }}"}}}}
    file, values = tmp_path / "es.json", tmp_path / "values.json"
    good = {**spec, "target": {"template": {"data": {f"k{HOSTILE}": "{{ .a }}"}}}}
    file.write_text(
        "\n---\n".join(
            json.dumps({"kind": "ExternalSecret", "metadata": {"name": f"n{HOSTILE}"}, "spec": each})
            for each in (spec, good)
        )
    )
    values.write_text(json.dumps({"a": f"v{HOSTILE}"}))

    code = run(RenderOptions(str(file), str(values), show_values=True))

    printed = capsys.readouterr()
    assert code == 1
    assert "]0;owned" in printed.out
    assert "]0;owned" in printed.err
    assert (printed.out + printed.err).replace("\n", "").isprintable()


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(
    "line", [f"Fatal {HOSTILE}", json.dumps({"msg": f"a{HOSTILE}", f"k{HOSTILE}": HOSTILE, "level": f"x{HOSTILE}"})]
)
def test_a_log_line_of_a_child_is_escaped(line: str, *, text: bool) -> None:
    written: list[str] = []

    LogLines(written.append, SystemClock(), text=text, shown=Shown.ALL).passed_on("fake", line)

    assert [each.isprintable() for each in written] == [True]
