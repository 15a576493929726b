"""PEM, PKCS#12, JWK, RSA and certificates: round trips."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from eso_render import Renderer, RenderError, render_text

NOW = 1_750_000_000
CLOCKED = Renderer(clock=lambda: NOW * 10**9)
CHAIN = (
    '{{ $ca := genCA "root" 30 }}{{ $leaf := genSignedCert "leaf" (list "10.0.0.1") (list "a.test") 10 $ca }}'
    "{{ $leaf.Cert }}{{ $ca.Cert }}|{{ $leaf.Key }}"
)


@pytest.fixture(scope="module")
def chain() -> dict[str, bytes]:
    certificates, key = CLOCKED.render(CHAIN, {}).split(b"|")
    return {"c": certificates, "k": key}


def test_a_signed_certificate_is_valid_from_the_clock_on_and_signed_by_its_authority(chain: dict[str, bytes]) -> None:
    leaf, root = x509.load_pem_x509_certificates(chain["c"])

    leaf.verify_directly_issued_by(root)
    assert leaf.not_valid_before_utc.timestamp() == NOW
    assert leaf.not_valid_after_utc.timestamp() == NOW + 10 * 86400


def test_a_keystore_opens_elsewhere_and_here(chain: dict[str, bytes]) -> None:
    store = render_text('{{ fullPemToPkcs12Pass .c .k "pass wörd" }}', chain)

    key, leaf, others = pkcs12.load_key_and_certificates(base64.b64decode(store), "pass wörd".encode())
    again = render_text('{{ .s | b64dec | pkcs12certPass "pass wörd" }}', {"s": store})

    assert key is not None
    assert leaf is not None
    assert len(others) == 1
    assert again == chain["c"]


def test_a_trust_store_opens_elsewhere(chain: dict[str, bytes]) -> None:
    store = base64.b64decode(render_text('{{ pemTruststoreToPKCS12Pass .c "changeit" }}', chain))

    opened = pkcs12.load_pkcs12(store, b"changeit")

    names = [entry.friendly_name for entry in opened.additional_certs]
    assert sorted(names, key=str) == [b"CN=leaf", b"CN=root"]


@pytest.mark.parametrize("scheme", ["PBE-SHA1-RC2-40", "PBE-SHA1-3DES", "AES-256-CBC"])
def test_keystores_of_other_tools_open(scheme: str, chain: dict[str, bytes]) -> None:
    made = subprocess.run(
        ["openssl", "pkcs12", "-export", "-legacy", "-certpbe", scheme, "-keypbe", scheme, "-passout", "pass:pw"],
        input=chain["k"] + chain["c"].split(b"-----END CERTIFICATE-----\n")[0] + b"-----END CERTIFICATE-----\n",
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("this OpenSSL has no such scheme")

    key = render_text('{{ .s | pkcs12keyPass "pw" }}', {"s": made.stdout})

    original, opened = load_pem_private_key(chain["k"], None), load_pem_private_key(key, None)
    assert opened.public_key() == original.public_key()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{{ fullPemToPkcs12 .junk .k }}", "nil pointer dereference", id="no certificate"),
        pytest.param('{{ pemToPkcs12 (printf "%s" .c) .c }}', "unable to parse private key type", id="no key"),
        pytest.param('{{ .junk | pkcs12keyPass "x" }}', "unable to decode pkcs12 with password", id="no keystore"),
        pytest.param('{{ pemToPkcs12Pass .c .k "\U0001f600" }}', "cannot be encoded in UCS-2", id="emoji password"),
        pytest.param('{{ filterCertChain "leaf" .k }}', "x509: malformed", id="a key among certificates"),
        pytest.param('{{ filterCertChain "leaf" .junk }}', "no leaf certificate found", id="no blocks at all"),
        pytest.param('{{ rsaDecrypt "X" "" "" "" }}', "decryption scheme X is not supported", id="unknown scheme"),
        pytest.param('{{ rsaDecrypt "RSA-OAEP" "" "" .junk }}', "failed to decode PEM block", id="no PEM"),
        pytest.param("{{ jwkPublicKeyPem .junk }}", "failed to unmarshal JSON into key hint", id="no JSON"),
        pytest.param(
            '{{ jwkPublicKeyPem `{"kty":"EC","crv":"P-256"}` }}', "required field x is missing", id="half a key"
        ),
    ],
)
def test_bad_input_has_a_clear_error_that_quotes_none_of_it(
    template: str, message: str, chain: dict[str, bytes]
) -> None:
    with pytest.raises(RenderError, match=message) as caught:
        render_text(template, {**chain, "junk": b"CANARY-junk"})

    assert "CANARY" not in str(caught.value)


def test_a_jwk_becomes_the_key_it_stands_for(chain: dict[str, bytes]) -> None:
    key = load_pem_private_key(chain["k"], None).public_key()
    numbers = key.public_numbers()  # type: ignore[union-attr] # the fixture makes RSA keys

    def number(value: int) -> str:
        return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()

    jwk = json.dumps({"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)})  # type: ignore[union-attr] # same
    pem = render_text("{{ jwkPublicKeyPem .j }}", {"j": jwk.encode()})

    assert b"BEGIN PUBLIC KEY" in pem


def test_a_private_key_that_does_not_fit_together_is_refused(chain: dict[str, bytes]) -> None:
    body = base64.b64decode(b"".join(chain["k"].split(b"\n")[1:-2]))
    broken = base64.encodebytes(body[:60] + bytes([body[60] ^ 1]) + body[61:])
    pem = b"-----BEGIN RSA PRIVATE KEY-----\n" + broken + b"-----END RSA PRIVATE KEY-----\n"

    with pytest.raises(RenderError, match="could not parse private key: unable to parse private key type"):
        render_text('{{ rsaDecrypt "RSA-OAEP" "SHA256" "x" .k }}', {"k": pem})
