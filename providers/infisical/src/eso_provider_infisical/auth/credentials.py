"""Forms whose parts are all in Secrets: universal, jwt, ldap and oci.

The form oci is a signed request for the own user, which Infisical sends to Oracle itself. The signature has the scheme
"Signing HTTP Messages" with RSA and SHA-256 over date, request target and host, and the key id
TENANCY/USER/FINGERPRINT.
"""

from __future__ import annotations

import base64
import re
from email.utils import format_datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from eso_api.stores.infisical import InfisicalJwtAuth, InfisicalLdapAuth, InfisicalOciAuth, InfisicalUniversalAuth
from eso_provider_infisical.auth.form import Form, Opened
from eso_sdk.errors import invalid_config
from eso_sdk.loginbodies import Body, fixed, optional_text, text


def universal(config: InfisicalUniversalAuth, store: Opened) -> Form:
    pointer = "/auth/universalAuthCredentials"
    client = text(store, config.client_id, f"{pointer}/clientId")
    secret = text(store, config.client_secret, f"{pointer}/clientSecret")
    return Form(
        name="universalAuthCredentials",
        method="universal-auth",
        call="MachineIdentityLoginViaUniversalAuth",
        proof=(client, secret),
        body=fixed({"clientId": client, "clientSecret": secret}),
        advice="check client id and client secret, whether the secret has expired or used up its uses, and trusted IPs",
    )


def jwt(config: InfisicalJwtAuth, store: Opened) -> Form:
    pointer = "/auth/jwtAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    token = text(store, config.jwt, f"{pointer}/jwt")
    return Form(
        name="jwtAuthCredentials",
        method="jwt-auth",
        call="MachineIdentityLoginViaJwtAuth",
        proof=(identity, token),
        body=fixed({"identityId": identity, "jwt": token}),
        advice="check the identity id, and that its JWT auth accepts issuer, audience and subject of the token",
    )


def ldap(config: InfisicalLdapAuth, store: Opened) -> Form:
    pointer = "/auth/ldapAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    user = text(store, config.ldap_username, f"{pointer}/ldapUsername")
    password = text(store, config.ldap_password, f"{pointer}/ldapPassword")
    return Form(
        name="ldapAuthCredentials",
        method="ldap-auth",
        call="MachineIdentityLoginViaLdapAuth",
        proof=(identity, user, password),
        body=fixed({"identityId": identity, "username": user, "password": password}),
        advice="check the identity id, user and password, and the directory of its LDAP auth",
    )


_REGION: Final = re.compile(r"[a-z]{2}-[a-z]+-[1-9]")
_OCID: Final = re.compile(r"[A-Za-z0-9._-]+")
_SIGNED: Final = ("date", "(request-target)", "host")


def oracle(config: InfisicalOciAuth, store: Opened) -> Form:
    pointer = "/auth/ociAuthCredentials"
    identity = text(store, config.identity_id, f"{pointer}/identityId")
    user = text(store, config.user_id, f"{pointer}/userId")
    region = text(store, config.region, f"{pointer}/region")
    tenancy = text(store, config.tenancy_id, f"{pointer}/tenancyId")
    fingerprint = text(store, config.fingerprint, f"{pointer}/fingerprint")
    pem = text(store, config.private_key, f"{pointer}/privateKey")
    passphrase = optional_text(store, config.private_key_passphrase, f"{pointer}/privateKeyPassphrase")
    if not _REGION.fullmatch(region):
        raise invalid_config(f"{pointer}/region", "does not name a region such as eu-frankfurt-1")
    if not _OCID.fullmatch(user):
        raise invalid_config(f"{pointer}/userId", "does not name the OCID of a user")
    key = _private_key(pem, passphrase, pointer)

    async def body() -> Body:
        signed = {
            "date": format_datetime(store.clock.now(), usegmt=True),
            "(request-target)": f"get /20160918/users/{user}",
            "host": f"identity.{region}.oraclecloud.com",
        }
        covered = "\n".join(f"{name}: {signed[name]}" for name in _SIGNED)
        signature = base64.b64encode(key.sign(covered.encode(), PKCS1v15(), SHA256())).decode()
        headers = {
            "host": signed["host"],
            "date": signed["date"],
            "authorization": f'Signature version="1",headers="{" ".join(_SIGNED)}",'
            f'keyId="{tenancy}/{user}/{fingerprint}",algorithm="rsa-sha256",signature="{signature}"',
        }
        return {"identityId": identity, "userOcid": user, "headers": headers}

    return Form(
        name="ociAuthCredentials",
        method="oci-auth",
        call="MachineIdentityLoginViaOciAuth",
        proof=(identity, tenancy, user, region, fingerprint, pem),
        body=body,
        advice="check the identity id, the key and its fingerprint, the region, and that its OCI auth allows the user",
    )


def _private_key(pem: str, passphrase: str, pointer: str) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), passphrase.encode() or None)
    except (ValueError, TypeError):
        raise invalid_config(
            f"{pointer}/privateKey", "names no private key in PEM, or its passphrase is wrong"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise invalid_config(f"{pointer}/privateKey", "names a key that is not an RSA key")
    return key
