"""The form oci: a signed request for the own user proves an Oracle Cloud user; Infisical sends it to Oracle itself.

The signature has the scheme "Signing HTTP Messages" with RSA and SHA-256 over date, request target and host, and the
key id TENANCY/USER/FINGERPRINT.
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

from eso_api.stores.infisical import InfisicalOciAuth
from eso_provider_infisical.auth.form import Form, Opened
from eso_sdk.errors import invalid_config
from eso_sdk.loginbodies import Body, optional_text, text

_REGION: Final = re.compile(r"[a-z]{2}-[a-z]+-[1-9]")
_OCID: Final = re.compile(r"[A-Za-z0-9._-]+")
_SIGNED: Final = ("date", "(request-target)", "host")


def oracle(config: InfisicalOciAuth, store: Opened) -> Form:
    place = "/auth/ociAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    user = text(store, config.user_id, f"{place}/userId")
    region = text(store, config.region, f"{place}/region")
    tenancy = text(store, config.tenancy_id, f"{place}/tenancyId")
    fingerprint = text(store, config.fingerprint, f"{place}/fingerprint")
    pem = text(store, config.private_key, f"{place}/privateKey")
    passphrase = optional_text(store, config.private_key_passphrase, f"{place}/privateKeyPassphrase")
    if not _REGION.fullmatch(region):
        raise invalid_config(f"{place}/region", "does not name a region such as eu-frankfurt-1")
    if not _OCID.fullmatch(user):
        raise invalid_config(f"{place}/userId", "does not name the OCID of a user")
    key = _private_key(pem, passphrase, place)

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


def _private_key(pem: str, passphrase: str, place: str) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), passphrase.encode() or None)
    except (ValueError, TypeError):
        raise invalid_config(f"{place}/privateKey", "names no private key in PEM, or its passphrase is wrong") from None
    if not isinstance(key, RSAPrivateKey):
        raise invalid_config(f"{place}/privateKey", "names a key that is not an RSA key")
    return key
