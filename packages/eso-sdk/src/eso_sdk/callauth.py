"""Command-line flags for the verification of call tokens, and the `TokenGate` they configure.

    no flags                         tokens are neither needed nor read
    --token-jwks, --token-issuer     verify the signature (`jwks.py`)
    --token-review                   ask the API server (`tokenreview.py`)

`--token-audience` names the audience that tokens must have. The operator requests `external-secrets-provider/NAME`,
where NAME is the provider's class, or NAMESPACE/SERVICE for a store that names the Service itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from eso_sdk.accounts import JwksSettings, TokenGate, TokenPolicy, Verifier
from eso_sdk.outbound import is_trustworthy
from eso_sdk.tokenreview import ReviewSettings, ReviewVerifier
from kubebase.clock import Clock

_TRUE = frozenset({"1", "true", "yes"})


class CallAuthError(ValueError):
    """The flags contradict each other; the text says what to change."""


@dataclass(frozen=True, slots=True)
class CallAuth:
    """How tokens are verified."""

    audiences: tuple[str, ...]
    by: JwksSettings | ReviewSettings
    policy: TokenPolicy = TokenPolicy.REQUIRED


def token_gate(auth: CallAuth | None, clock: Clock) -> TokenGate:
    if auth is None:
        return TokenGate()
    verifier: Verifier
    match auth.by:
        case JwksSettings():
            # Most providers verify no signatures and do not need this import.
            from eso_sdk.jwks import JwksVerifier

            verifier = JwksVerifier(auth.by, auth.audiences, clock)
        case ReviewSettings():
            verifier = ReviewVerifier(auth.by, auth.audiences, clock)
        case _ as never:
            assert_never(never)
    return TokenGate(verifier, auth.policy)


def add_flags(parser: argparse.ArgumentParser, given: Mapping[str, str]) -> None:
    """Add the flags. `given` holds defaults from the environment, by the flag's name in capitals."""
    parser.add_argument(
        "--token-audience",
        action="append",
        default=[name for name in given.get("TOKEN_AUDIENCE", "").split(",") if name],
        metavar="AUDIENCE",
        help="verify the tokens of calls (auth.serviceAccountRef), which must be for this audience; may be repeated",
    )
    parser.add_argument(
        "--token-jwks",
        default=given.get("TOKEN_JWKS", ""),
        metavar="FILE_OR_URL",
        help="public keys of the token issuer: a file or an address",
    )
    parser.add_argument(
        "--token-issuer", default=given.get("TOKEN_ISSUER", ""), help="issuer of the tokens, with --token-jwks"
    )
    parser.add_argument(
        "--token-jwks-ca",
        default=given.get("TOKEN_JWKS_CA", ""),
        metavar="FILE",
        help="CA certificates for the address of --token-jwks; by default the system's",
    )
    parser.add_argument(
        "--token-review",
        action="store_true",
        default=given.get("TOKEN_REVIEW", "").lower() in _TRUE,
        help="ask the API server instead, with the pod's own token",
    )
    parser.add_argument(
        "--token-policy",
        choices=[policy.value for policy in TokenPolicy],
        default=given.get("TOKEN_POLICY", TokenPolicy.REQUIRED.value),
        help="whether calls without a token are refused",
    )


def call_auth(chosen: argparse.Namespace, environment: Mapping[str, str]) -> CallAuth | None:
    """Return the settings of the flags; None if tokens are not verified. Raises `CallAuthError`."""
    if not (chosen.token_jwks or chosen.token_review):
        if chosen.token_audience or chosen.token_issuer:
            raise CallAuthError("--token-audience and --token-issuer need --token-jwks or --token-review")
        return None
    if chosen.token_jwks and chosen.token_review:
        raise CallAuthError("--token-jwks and --token-review exclude each other")
    if not chosen.token_audience:
        raise CallAuthError("--token-audience is needed: a provider that accepts every audience accepts stolen tokens")
    by = _review(environment) if chosen.token_review else _jwks(chosen)
    return CallAuth(tuple(chosen.token_audience), by, _policy(chosen.token_policy))


def _review(environment: Mapping[str, str]) -> ReviewSettings:
    if (settings := ReviewSettings.of_pod(environment)) is None:
        raise CallAuthError("--token-review works in a pod only: KUBERNETES_SERVICE_HOST is not set")
    return settings


def _jwks(chosen: argparse.Namespace) -> JwksSettings:
    if not chosen.token_issuer:
        raise CallAuthError("--token-jwks needs --token-issuer: the iss of the tokens that are good")
    if "://" in chosen.token_jwks and not is_trustworthy(chosen.token_jwks):
        raise CallAuthError("--token-jwks takes a file, an https:// address, or an http:// one of this machine")
    return JwksSettings(
        chosen.token_jwks, chosen.token_issuer, Path(chosen.token_jwks_ca) if chosen.token_jwks_ca else None
    )


def _policy(text: str) -> TokenPolicy:
    """Parse the policy: argparse does not check a default from the environment against the choices."""
    try:
        return TokenPolicy(text)
    except ValueError:
        raise CallAuthError('--token-policy is "required" or "optional"') from None
