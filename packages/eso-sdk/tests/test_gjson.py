"""Property lookup by gjson paths. The tables hold what the Go library (1.18) answers to the same questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_sdk.gjson import MAX_DOCUMENT_BYTES, GjsonError, TooMuchWorkError, get

PEOPLE = b"""{
  "name": {"first": "Tom", "last": "Anderson"},
  "age": 37,
  "children": ["Sara", "Alex", "Jack"],
  "fav.movie": "Deer Hunter",
  "friends": [
    {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"]},
    {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"]},
    {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"]}
  ]
}"""
MIXED = (
    rb'{"a":{"b":[1,2.50,{"c":"x\ny"}],"n":null},"s":"\u00e9\ud83d\ude42\/","big":12345678901234567890,'
    rb'"e":1e3,"neg":-0.10,"t":true,"f":false,"o":{ "k" : 1 },"":"none","x*y":"star","0":"zero",'
    rb'"dup":{"p":1},"dup":{"q":2}}'
)
FLAGS = (
    b'{"v":[{"a":1,"b":true},{"a":2,"b":false},{"a":3,"b":"true"},{"a":4,"b":0},'
    b'{"a":5,"b":null},{"a":6},{"a":7,"b":[]}]}'
)
MATRIX = b"[[1,[2]],[3,4],5]"
COLUMNS = b'{"id":["123","456"],"val":[2,1]}'
LINES = b'{"name":"Gilbert","age":61}\n{"name":"Alexa","age":34}\n{"name":"May","age":57}\n'

FOUND = [
    # keys and indexes
    (PEOPLE, "name.last", "Anderson"),
    (PEOPLE, "age", "37"),
    (PEOPLE, "children", '["Sara", "Alex", "Jack"]'),
    (PEOPLE, "children.1", "Alex"),
    (PEOPLE, r"fav\.movie", "Deer Hunter"),
    (MIXED, "0", "zero"),
    (MIXED, "", "none"),
    (MIXED, "dup.q", "2"),
    # texts of values
    (MIXED, "a.b.1", "2.5"),
    (MIXED, "a.b.2.c", "x\ny"),
    (MIXED, "a.n", ""),
    (MIXED, "s", "é🙂/"),
    (MIXED, "big", "12345678901234567890"),
    (MIXED, "e", "1000"),
    (MIXED, "neg", "-0.1"),
    (MIXED, "t", "true"),
    (MIXED, "o", '{ "k" : 1 }'),
    # wildcards
    (PEOPLE, "child*.2", "Jack"),
    (PEOPLE, "c?ildren.0", "Sara"),
    (PEOPLE, "*.first", "Tom"),
    (MIXED, r"x\*y", "star"),
    (MIXED, "x?y", "star"),
    # counts, each
    (PEOPLE, "children.#", "3"),
    (PEOPLE, "friends.#.age", "[44,68,47]"),
    (PEOPLE, "friends.#.nets.0", '["ig","fb","ig"]'),
    (PEOPLE, "friends.#.missing", "[]"),
    # queries
    (PEOPLE, 'friends.#(last=="Murphy").first', "Dale"),
    (PEOPLE, 'friends.#(last=="Murphy")#.first', '["Dale","Jane"]'),
    (PEOPLE, "friends.#(age>45)#.last", '["Craig","Murphy"]'),
    (PEOPLE, "friends.#(age<=44)#.first", '["Dale"]'),
    (PEOPLE, 'friends.#(first%"D*").last', "Murphy"),
    (PEOPLE, 'friends.#(first!%"D*").last', "Craig"),
    (PEOPLE, 'friends.#(first!="Dale")#.first', '["Roger","Jane"]'),
    (PEOPLE, 'friends.#(nets.#(=="fb"))#.first', '["Dale","Roger"]'),
    (PEOPLE, "friends.#(nets.#>2).first", "Dale"),
    (PEOPLE, 'children.#(!%"*a*")#', '["Alex"]'),
    (PEOPLE, 'children.#(%"*a*")#', '["Sara","Jack"]'),
    (PEOPLE, "friends.#(first)#|#", "3"),
    (PEOPLE, 'friends.#(last=="Unknown")#', "[]"),
    (FLAGS, "v.#(b==~true)#.a", "[1,3]"),
    (FLAGS, "v.#(b==~false)#.a", "[2,4,5,6]"),
    (FLAGS, "v.#(b==~null)#.a", "[5,6]"),
    (FLAGS, "v.#(b==~*)#.a", "[1,2,3,4,5,7]"),
    (FLAGS, "v.#(b!=~true)#.a", "[2,4,5,6,7]"),
    # pipes and dots differ after a list of results
    (PEOPLE, "friends.#.first|0", "Dale"),
    (PEOPLE, "friends.#.first.0", "[]"),
    (PEOPLE, 'friends.#(last="Murphy")#|0.age', "44"),
    # modifiers
    (PEOPLE, "children|@reverse", '["Jack","Alex","Sara"]'),
    (PEOPLE, "children.@reverse.0", "Jack"),
    (PEOPLE, "name.@keys", '["first","last"]'),
    (PEOPLE, "name.@values", '["Tom","Anderson"]'),
    (PEOPLE, "name.@ugly", '{"first":"Tom","last":"Anderson"}'),
    (PEOPLE, "name.@this.first", "Tom"),
    (PEOPLE, "name.first.@tostr", '"Tom"'),
    (MIXED, "t.@tostr", "true"),
    (PEOPLE, "missing|@keys", "[]"),
    (MIXED, "o|@tostr", '{ "k" : 1 }'),
    (MIXED, "[o|@tostr]", r'["{ \"k\" : 1 }"]'),
    (MIXED, "o|@tostr|@fromstr|k", "1"),
    (MIXED, "a|@pretty", '{\n  "b": [\n    1,\n    2.50,\n    {\n      "c": "x\\ny"\n    }\n  ],\n  "n": null\n}\n'),
    (MIXED, "@valid|t", "true"),
    (MATRIX, "@flatten", "[1,[2],3,4,5]"),
    (MATRIX, '@flatten:{"deep":true}', "[1,2,3,4,5]"),
    (COLUMNS, "@group", '[{"id":"123","val":2},{"id":"456","val":1}]'),
    (b'[{"a":1,"b":2},{"b":3}]', "@join", '{"a":1,"b":3}'),
    (b'[{"a":1,"b":2},{"b":3}]', '@join:{"preserve":true}', '{"a":1,"b":2,"b":3}'),
    (MIXED, "@dig:k", "[1]"),
    (PEOPLE, "@dig:first|0", "Tom"),
    # multipaths and literals
    (PEOPLE, "{name.first,age}", '{"first":"Tom","age":37}'),
    (PEOPLE, '{"who":name.first,n:age}', '{"who":"Tom","n":37}'),
    (PEOPLE, "[age,name.first,missing]", '[37,"Tom"]'),
    (PEOPLE, "friends.0.{first,nets.#}", '{"first":"Dale","_":3}'),
    (PEOPLE, '{age,"x":!"fixed"}', '{"age":37,"x":"fixed"}'),
    (PEOPLE, "!true", "true"),
    # lines
    (LINES, "..#", "3"),
    (LINES, "..1.name", "Alexa"),
    (LINES, "..#.age", "[61,34,57]"),
    (LINES, '..#(name="May").age', "57"),
    # text before the object is passed over
    (b'garbage {"a":1}', "a", "1"),
]
MISSING = [
    (PEOPLE, "name.middle"),
    (PEOPLE, "children.3"),
    (PEOPLE, "children.x"),
    (PEOPLE, "age.years"),
    (PEOPLE, "fav.movie"),
    (PEOPLE, 'friends.#(last=="Unknown").first'),
    (PEOPLE, "friends.#(age>45).missing"),
    (PEOPLE, "friends.#("),
    (PEOPLE, "{name"),
    (PEOPLE, "@nope"),
    (PEOPLE, "age|@valid|x"),
    (b"plain text", "a"),
    (b"", "a"),
    (b'{"a":', "a"),
    (b'{"a":"unfinished', "a"),
    (b"{x}", "@valid"),
]


@pytest.mark.parametrize(("document", "path", "text"), FOUND, ids=[path or "(empty)" for _, path, _ in FOUND])
def test_a_path_finds_its_value(document: bytes, path: str, text: str) -> None:
    result = get(document, path)

    assert result.exists
    assert result.text.decode() == text


@pytest.mark.parametrize(("document", "path"), MISSING, ids=[path for _, path in MISSING])
def test_a_path_without_a_value_finds_nothing(document: bytes, path: str) -> None:
    result = get(document, path)

    assert (result.exists, result.text, result.raw) == (False, b"", b"")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("1e21", "1000000000000000000000"),
        ("1E-7", "0.0000001"),
        ("-0.0", "-0"),
        ("-0", "-0"),
        ("007", "007"),
        ("1.0", "1"),
        ("123456789.123456789", "123456789.12345679"),
        ("1e400", "+Inf"),
        ("5e-324", "0." + "0" * 323 + "5"),
        ("1x", "0"),
    ],
)
def test_numbers_are_written_as_go_writes_them(number: str, text: str) -> None:
    assert get(b'{"n":%s}' % number.encode(), "n").text.decode() == text


def test_raw_is_the_json_and_text_the_content() -> None:
    result = get(rb'{"a":"x\ty"}', "a")

    assert result.raw == rb'"x\ty"'
    assert result.text == b"x\ty"


def test_bytes_that_are_no_utf8_come_through_unchanged() -> None:
    assert get(b'{"a":"\xff\xfe"}', "a").text == b"\xff\xfe"


def test_arrays_that_fit_the_width_stay_on_one_line() -> None:
    text = get(b'{"short":[1,2],"long":[' + b"100000," * 12 + b"1]}", "@pretty").text.decode()

    assert '"short": [1, 2]' in text
    assert '"long": [\n    100000,' in text


def test_pretty_takes_options() -> None:
    path = '@pretty:{"sortKeys":true,"indent":"\\t","width":0}'

    assert get(b'{"b":[1],"a":{}}', path).text == b'{\n\t"a": {},\n\t"b": [\n\t\t1\n\t]\n}\n'


def test_a_result_does_not_print_its_value() -> None:
    assert "CANARY" not in repr(get(b'{"a":"CANARY"}', "a"))


MANY = b"[%s1]" % (b"1," * 199_999)
"""Small, but slow to process: a tenant who writes both value and path must not block a provider with them."""


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        pytest.param(b" " * (MAX_DOCUMENT_BYTES + 1), "a", "document has more than", id="document"),
        pytest.param(b"{}", "a" * 4097, "path has more than", id="path"),
        pytest.param(b"[" * 300 + b"]" * 300, "0." * 200 + "0", "deeper than 100", id="dots"),
        pytest.param(b"{}", "|".join(["@this|@valid"] * 100), "deeper than 100", id="pipes"),
        pytest.param(b"[" * 300 + b"]" * 300, "@pretty", "deeper than 100", id="pretty"),
        pytest.param(b"[" * 300 + b"]" * 300, '@flatten:{"deep":true}', "deeper than 100", id="flatten"),
        pytest.param(b"[" * 300 + b"]" * 300, "@dig:a", "deeper than 100", id="dig"),
        pytest.param(b'{"a":"%s"}' % (b"x" * 1000), "|".join(["[@this,@this]"] * 30), "bytes|work", id="doubling"),
        pytest.param(MANY, "|".join(["@reverse|@values"] * 2), "work", id="many small entries, over and over"),
        pytest.param(MANY, f"[{','.join(['199999'] * 10)}]", "work", id="many small entries, side by side"),
        pytest.param(b"[" * 10**6 + b"]" * 10**6, "0", "work", id="nothing but brackets"),
        pytest.param(b'["%s"]' % (b"\\n" * 5 * 10**6), "0", "work", id="nothing but escapes"),
        pytest.param(b'["%s"]' % (b"a" * 10**6), '#(%"*' + "a?" * 2000 + 'b*")', "work", id="wildcards"),
    ],
)
def test_a_bound_is_an_error_of_its_own(document: bytes, path: str, message: str) -> None:
    with pytest.raises(GjsonError, match=message):
        get(document, path)


@pytest.mark.parametrize(
    ("once", "repeated"),
    [
        pytest.param("@pretty", "|".join(["@pretty"] * 99), id="after pipes"),
        pytest.param("@pretty", ".".join(["@pretty"] * 99), id="after dots"),
        pytest.param("@pretty|@ugly", "|".join(["@pretty"] * 30 + ["@ugly"] * 30), id="two modifiers"),
        pytest.param("@this.a", "@this." * 50 + "a", id="before a key"),
        pytest.param("@this|@thisx", "@this|@this|@thisx", id="before a name that begins like a modifier"),
        pytest.param('@pretty|@pretty:{"indent":" "}', '@pretty|@pretty|@pretty:{"indent":" "}', id="an argument"),
        pytest.param("@flatten:1.@flatten:1", "@flatten:1.@flatten:1|@flatten:1", id="an argument with a dot"),
        pytest.param("@reverse", "@reverse|@reverse|@reverse", id="a modifier that undoes itself"),
    ],
)
def test_a_repeated_modifier_has_the_same_result_as_the_necessary_ones(once: str, repeated: str) -> None:
    document = b'{"a":[1,{"b":"]}"}], "c" : {}}'

    assert get(document, repeated) == get(document, once)


def test_a_modifier_that_changes_nothing_is_not_evaluated_again() -> None:
    document = b'{"a":"%s"}' % (b"x" * 800_000)

    twice, often = (get(document, "|".join(["@pretty"] * count)) for count in (2, 30))

    assert often == twice
    assert often.work == twice.work


def test_levels_of_nesting_count_as_work_of_a_modifier_that_reads_them_all() -> None:
    text = b'"%s"' % (b"x" * 800_000)

    flat, nested = (get(b'{"a":' * levels + text + b"}" * levels, "@pretty") for levels in (1, 50))

    assert nested.work > 10 * flat.work


def test_a_lookup_does_no_more_work_than_it_may() -> None:
    document = b'{"a":"%s"}' % (b"x" * 1000)
    whole = get(document, "@pretty|@ugly|a")

    with pytest.raises(TooMuchWorkError) as refused:
        get(document, "@pretty|@ugly|a", work=whole.work - 1)

    assert 0 < refused.value.spent < whole.work
    assert get(document, "@pretty|@ugly|a", work=whole.work) == whole


def test_a_large_secret_is_within_the_bounds() -> None:
    people = b",".join(b'{"name":"person-%d","mail":"%d@example.com"}' % (number, number) for number in range(20_000))

    assert get(b'{"people":[%s]}' % people, 'people.#(name=="person-19999").mail').text == b"19999@example.com"


_fragments = st.sampled_from([*'ab#0*?.|()[]{}"\\=!%~:,é\udcff', "..", "@keys", "@this", "@dig:"])
_paths = st.lists(_fragments, max_size=12).map("".join)
_documents = st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"a", b":", b",", b"1", b"null", b"t", b"\\", b"\xff", b" "]),
    max_size=30,
).map(b"".join)


@given(document=_documents, path=_paths)
def test_no_input_makes_it_fail(document: bytes, path: str) -> None:
    result = get(document, path)

    assert isinstance(result.text, bytes)
