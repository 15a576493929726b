"""What this operator does with flags of another command line."""

from __future__ import annotations

import pytest

from eso_operator.flags import WITHOUT_EFFECT, Verdict, contradiction, examine, flags_in


@pytest.mark.parametrize(
    ("name", "value", "verdict", "says"),
    [
        pytest.param("enable-leader-election", "true", Verdict.ACCEPTED, "", id="a switch acts as before"),
        pytest.param("loglevel", "debug", Verdict.ACCEPTED, "", id="a value acts as before"),
        pytest.param("metrics-auth", None, Verdict.ACCEPTED, "", id="a bare switch acts as before"),
        pytest.param(
            "client-qps", "50", Verdict.WITHOUT_EFFECT, WITHOUT_EFFECT["client-qps"], id="the reason is named"
        ),
        pytest.param("concurrent", "4", Verdict.DIFFERENT, "below 32 means 32", id="the difference is named"),
        pytest.param("loglevel", "DEBUG", Verdict.ACCEPTED, "", id="upper case, as the chart in Go accepts it"),
        pytest.param("loglevel", "loud", Verdict.REFUSED, "its value is none of debug, info", id="a refused word"),
        pytest.param("store-requeue-interval", "soon", Verdict.REFUSED, "its value", id="a refused duration"),
        pytest.param("loglevel", "$(LEVEL)", Verdict.ACCEPTED, "", id="a value that the kubelet expands is not judged"),
        pytest.param("made-up", "x", Verdict.UNKNOWN, "no such flag", id="an unknown flag"),
        pytest.param("made-up", None, Verdict.UNKNOWN, "no such flag", id="an unknown bare flag"),
    ],
)
def test_the_verdict_on_a_flag(name: str, value: str | None, verdict: Verdict, says: str) -> None:
    judged = examine(name, value)

    assert (judged.flag, judged.verdict) == (f"--{name}", verdict)
    assert says in judged.reason


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        pytest.param(["--metrics-auth", "--loglevel=info"], "needs --metrics-secure", id="a token in the clear"),
        pytest.param(
            ["--enable-leader-election", "--leader-election-retry-period=1h"],
            "leader election needs",
            id="times in a wrong order",
        ),
        pytest.param(["--metrics-auth", "--metrics-secure=true"], "", id="flags that fit"),
        pytest.param(["--leader-election-retry-period=$(A)", "webhook"], "", id="a value that the kubelet expands"),
    ],
)
def test_flags_that_are_refused_together(arguments: list[str], part: str) -> None:
    assert bool(contradiction(arguments)) is bool(part)
    assert part in contradiction(arguments)


@pytest.mark.parametrize("value", ["DEBUG-8f3a", "8f3a soon"])
@pytest.mark.parametrize("name", ["loglevel", "store-requeue-interval", "metrics-addr", "concurrent"])
def test_a_refused_value_is_not_repeated(name: str, value: str) -> None:
    judged = examine(name, value)

    assert judged.verdict is Verdict.REFUSED
    assert "8f3a" not in judged.reason


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--a=1", "--b"], [("a", "1"), ("b", None)], id="with and without a value"),
        pytest.param(["--a", "1", "--b"], [("a", "1"), ("b", None)], id="the value in the next word"),
        pytest.param(["webhook", "--a="], [("a", "")], id="other words are skipped, an empty value is one"),
        pytest.param(["--"], [], id="dashes alone are no flag"),
    ],
)
def test_flags_are_found_in_arguments(arguments: list[str], expected: list[tuple[str, str | None]]) -> None:
    assert list(flags_in(arguments)) == expected
