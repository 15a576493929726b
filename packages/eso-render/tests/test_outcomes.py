"""Results of Go from which ours once differed, found by comparing many generated templates."""

from __future__ import annotations

import pytest

from eso_render import RenderError, render_text

DAY = '(toDate "2006-01-02" "2024-05-06")'
JSON_WITH_A_SLASH = {"y": b'{"a": "x\\/y"}'}
EC_KEY = (
    b'{"kty": "EC", "crv": "P-256", "x": "P14nKTaaAwpp9nI-f0KDyFz5gCiByZgdxUwp-Kz5iLM", '
    b'"y": "fkdi7a1knHjhwk94w0RZQXjsMaY66gMkWp4M9uW2R6Y"'
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{ merge (dict) (dict "a" nil "b" 1) }}', "map[b:1]", id="merge does not take nil"),
        pytest.param('{{ merge (dict "a" 0) (dict "a" nil) }}', "map[a:0]", id="merge keeps zero over nil"),
        pytest.param('{{ mergeOverwrite (dict "a" 1) (dict "a" nil) | toJson }}', '{"a":null}', id="nil overwrites"),
        pytest.param(
            '{{ mergeOverwrite (dict "a" (dict "k" 1)) (dict "a" (split "," "x")) | toJson }}',
            '{"a":{"_0":"x","k":1}}',
            id="a map of strings merges into a dict",
        ),
        pytest.param("{{ concat (list) (list) | toJson }}", "null", id="nothing concatenated is nil"),
        pytest.param('{{ unset nil "a" }}', "map[]", id="unset of nil is a map"),
        pytest.param("{{ mustChunk -3 (list 1 2 3) }}", "[]", id="a negative chunk"),
        pytest.param("{{ ceil -0.4 }} {{ floor -0.4 }}", "-0 -1", id="ceil keeps the sign of zero"),
        pytest.param('{{ semverCompare "!=1.2.3" "1.2.4-beta" }}', "false", id="prereleases do not count unasked"),
        pytest.param('{{ semverCompare "1.2.3-beta - 1.3" "1.2.3-rc.1" }}', "true", id="one prerelease opens a range"),
        pytest.param('{{ semverCompare ">*" "1.2.3" }}', "true", id="a lone wildcard is 0.0.0"),
        pytest.param('{{ semverCompare "~0.0.0" "9.1.0" }}', "true", id="tilde of zero takes everything"),
        pytest.param('{{ (semver "v1.2.3").SetPrerelease "rc.1" }}', "1.2.3-rc.1", id="a prerelease is set"),
        pytest.param('{{ regexReplaceAll "(a)" "xax" "[$01]" }}', "x[]x", id="a reference has no leading zero"),
        pytest.param(f"{{{{ eq {DAY}.Weekday 1 }}}} {{{{ lt {DAY}.Month 6 }}}}", "true true", id="months compare"),
        pytest.param(f'{{{{ index (list "So" "Mo") {DAY}.Weekday }}}}', "Mo", id="a weekday is an index"),
        pytest.param(f'{{{{ printf "%T %d" {DAY}.Weekday {DAY}.Weekday }}}}', "time.Weekday 1", id="weekdays' type"),
        pytest.param(
            f"{{{{ {DAY}.Month.String }}}} {{{{ {DAY}.Location }}}}", "May UTC", id="methods of months, times"
        ),
        pytest.param(
            '{{ dateInZone "15:04 MST" 1700000000 "America/Sao_Paulo" }}', "19:13 -03", id="a zone without letters"
        ),
        pytest.param(
            f'{{{{ (({DAY}.Sub (toDate "2006-01-02" "2024-05-07")).Abs).Truncate 1 }}}}', "24h0m0s", id="durations"
        ),
        pytest.param(
            "{{ lower `İST` }} {{ upper `ᾀß` }} {{ untitle `İST` }}", "ist ᾈß iST", id="case of one character"
        ),
        pytest.param(
            "{{ lower `ΑΣ` }} {{ swapcase `ⅷⓐ` }} {{ camelcase `ⅧA` }}", "\u03b1\u03c3 ⅷⓐ ⅧA", id="case of letters only"
        ),
        pytest.param('{{ derivePassword +0 "pin" "p" "u" "s" }}', "9426", id="zero with a sign"),
        pytest.param("{{ round -0.0 2 }} {{ round -0.04 1 }}", "-0 -0.1", id="rounding keeps the sign of zero"),
        pytest.param("{{ seq 9223372036854775807 }}", "", id="a sequence to the last number wraps around"),
        pytest.param('{{ derivePassword 4294967296 "long" "p" "u" "s" }}', "WupeHanuFiyi6@", id="a counter of 32 bits"),
        pytest.param(r'{{ js "\x7f\x1f\u0080" }}', "\x7f\\u001F\\u0080", id="control characters in scripts"),
        pytest.param("{{ urlquery `a b/c~é` }}", "a+b%2Fc~%C3%A9", id="queries are escaped"),
    ],
)
def test_a_template_renders_as_in_go(template: str, expected: str) -> None:
    assert render_text(template, {}).decode() == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(
            '{{ dig "a" 1 "d" (dict "a" 2) }}',
            "error calling dig: interface conversion: interface {} is int, not string",
            id="dig looks at all keys first",
        ),
        pytest.param(
            '{{ semverCompare "1.2>1" "1.2.3" }}', "improper constraint: 1.2>1", id="bounds need a space between"
        ),
        pytest.param(
            '{{ semverCompare "1x" "1.2.3" }}', "constraint parser error", id="a number with a wildcard in it"
        ),
        pytest.param(
            r'{{ regexFind "\\C" "a" }}',
            r"regexp: Compile(`\C`): error parsing regexp: invalid escape sequence: `\C`",
            id="no single bytes in expressions",
        ),
        pytest.param(
            r'{{ regexFind "(\n" "a" }}',
            r'regexp: Compile("(\n"): error parsing regexp: missing closing ): `(',
            id="an expression that backquotes cannot hold",
        ),
        pytest.param(
            "{{ urlParse `http://u:p#w@h/x` }}",
            'parse "http://u:p": invalid port ":p" after host',
            id="the fragment is not part of a bad URL",
        ),
        pytest.param(
            '{{ mustFromJson `"\\u12"` }}', 'invalid escape sequence `\\u12"` in string', id="a short escape in JSON"
        ),
        pytest.param("{{ trunc coalesce `x` }}", "expected int; got interface {}", id="a bare function that gives nil"),
        pytest.param(
            '{{ decryptAES "k" "aGVsbG8=" }}', "slice bounds out of range [:16] with capacity 6", id="too short for AES"
        ),
        pytest.param("{{ until -9223372036854775808 }}", "is longer than 100000", id="a bound, where Go never ends"),
        pytest.param(
            '{{ toDate (repeat 5000 " ") (repeat 5000 " ") }}',
            "error calling toDate: a date or its layout is longer than 4096 characters",
            id="a bound, where long layouts would take minutes",
        ),
        pytest.param("{{- -}}", 'tpl:1: illegal number syntax: "-"', id="one space cannot serve two trim markers"),
        pytest.param("{{ 0xFFFFFFFFFFFFFFFFFF }}", "illegal number syntax", id="a hexadecimal overflow"),
        pytest.param("{{ 0x1i }}", "illegal number syntax", id="a hexadecimal imaginary number"),
        pytest.param("{{ 1+i }}", "tpl:1: syntax error scanning complex number", id="no imaginary number"),
        pytest.param("{{\n$x\n}}", 'tpl:3: undefined variable "$x"', id="the line of an unknown variable"),
        pytest.param("{{\nnil.x\n}}", 'tpl:2: unexpected . after term "nil"', id="the line of a field of a literal"),
    ],
)
def test_an_error_has_gos_words(template: str, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        render_text(template, {})

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("[[ end ]]", "unexpected [[end]]", id="end"),
        pytest.param("[[ if 1 ]][[ else ]][[ else ]]", "expected end; found [[else]]", id="else"),
        pytest.param('[[ template "x" ]]', 'at <[[template "x"]]>: template "x" not defined', id="template"),
    ],
)
def test_messages_show_the_delimiters_of_the_template(template: str, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        render_text(template, {}, left="[[", right="]]")

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("template", "left", "right", "expected"),
    [
        pytest.param("$ if .user $y$ else $n$ end $", "$", "$", "y", id="dollar signs"),
        pytest.param("a .user | upper b", "a", "b", "ADA", id="letters"),
        pytest.param("1 .user 2", "1", "2", "ada", id="digits"),
    ],
)
def test_a_closing_delimiter_goes_before_whatever_else_it_could_be(
    template: str, left: str, right: str, expected: str
) -> None:
    assert render_text(template, {"user": b"ada"}, left=left, right=right).decode() == expected


def test_yaml_does_not_know_the_escaped_slash_of_json() -> None:
    output = render_text("{{ (fromYaml .y).Error }}", JSON_WITH_A_SLASH)

    assert output == b"error converting YAML to JSON: yaml: found unknown escape character"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param(b'{"kty": "EC"', "failed to unmarshal JSON into key hint: unexpected EOF", id="cut short"),
        pytest.param(b"null", "invalid key type from JSON (", id="null"),
        pytest.param(
            b'{"kty": 1}', "cannot unmarshal number into Go struct field .kty of type string", id="a numeric type"
        ),
        pytest.param(b'{"kty": "EC", "x": ""}', "required field crv is missing", id="no curve"),
        pytest.param(
            b'{"kty": "EC", "x": "!"}',
            "failed to decode value for key x: expected base64 encoded []byte (string)",
            id="not base64",
        ),
        pytest.param(
            EC_KEY + b', "kid": 1}',
            "(*jwk.ecdsaPublicKey): failed to decode value for key kid: error reading next value: "
            "json: cannot unmarshal number into Go value of type string",
            id="a numeric identifier",
        ),
        pytest.param(
            EC_KEY.replace(b"P-256", b"P-1") + b"}", "failed to build public key: invalid curve algorithm", id="curve"
        ),
        pytest.param(EC_KEY.replace(b"P14n", b"P15n") + b"}", "P256 point not on curve", id="not on the curve"),
        pytest.param(EC_KEY + b', "d": ""}', "x509: unsupported public key type: *ecdsa.PrivateKey", id="private key"),
        pytest.param(
            b'{"kty": "OKP", "crv": "X25519", "x": "yL_fOMYkLqFTVKwveK0R9PPgf7g8r9xBuhtQ2oDdzSc"}',
            "x509: unsupported public key type: x25519.PublicKey",
            id="a key of no X.509 type",
        ),
    ],
)
def test_a_bad_json_web_key_is_refused_in_gos_words(key: bytes, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        render_text("{{ jwkPublicKeyPem .j }}", {"j": key})

    assert message in str(caught.value)


def test_line_breaks_in_the_numbers_of_a_json_web_key_do_not_count() -> None:
    plain = render_text("{{ jwkPublicKeyPem .j }}", {"j": EC_KEY + b"}"})

    broken = render_text("{{ jwkPublicKeyPem .j }}", {"j": EC_KEY.replace(b"P14n", b"P14n\\n") + b"}"})

    assert broken == plain


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(EC_KEY.replace(b'"kty"', b'"KTY"') + b"}", id="capitals in the name of the type"),
        pytest.param(EC_KEY + b', "n": "!", "qi": 1, "k": []}', id="fields of other types of keys"),
    ],
)
def test_a_json_web_key_may_have_fields_that_mean_nothing(text: bytes) -> None:
    plain = render_text("{{ jwkPublicKeyPem .j }}", {"j": EC_KEY + b"}"})

    assert render_text("{{ jwkPublicKeyPem .j }}", {"j": text}) == plain


def test_any_numbers_make_a_public_key_of_rsa() -> None:
    output = render_text("{{ jwkPublicKeyPem .j }}", {"j": b'{"kty": "RSA", "n": "AQAB", "e": "AQAB"}'})

    assert output.decode().split("\n")[1] == "MB4wDQYJKoZIhvcNAQEBBQADDQAwCgIDAQABAgMBAAE="


@pytest.mark.parametrize(
    ("primes", "message"),
    [
        pytest.param(b"", "error calling jwkPrivateKeyPem: modulus must be > 1", id="none"),
        pytest.param(b', "p": "Aw", "q": "Aw"', "error calling jwkPrivateKeyPem: crypto/rsa: p * q != n", id="others"),
    ],
)
def test_a_private_key_of_rsa_needs_its_primes(primes: bytes, message: str) -> None:
    key = b'{"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "AQ"' + primes + b"}"

    with pytest.raises(RenderError) as caught:
        render_text("{{ jwkPrivateKeyPem .j }}", {"j": key})

    assert message in str(caught.value)
