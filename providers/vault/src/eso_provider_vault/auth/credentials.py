"""Methods with credentials of a Secret: appRole, ldap and userPass, and cert with a TLS client certificate."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from eso_api.stores.vault import OpenBaoAppRole, OpenBaoUserPass, VaultAppRole, VaultCert, VaultPassword
from eso_provider_vault.auth.method import (
    ClientCertificate,
    Method,
    Secrets,
    digest,
    fixed,
    line,
    mount_of,
    named,
    needed,
    text,
)
from eso_sdk.errors import invalid_config
from eso_sdk.refusals import Pauses

PASSWORD_PAUSES: Final = Pauses(first=60.0, longest=900.0)
"""Vault locks a user after five failures within 15 minutes."""


def app_role(config: VaultAppRole | OpenBaoAppRole, secrets: Secrets) -> Method:
    pointer = "/auth/appRole"
    secret_id = line(
        secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the secret id")), f"{pointer}/secretRef"
    )
    if config.role_id.strip():
        role_id = config.role_id.strip()
    elif config.role_ref is not None:
        role_id = line(secrets.secret(config.role_ref), f"{pointer}/roleRef")
    else:
        raise invalid_config(pointer, "needs roleId, or roleRef with the Secret and the key that hold the role id")
    return Method(
        name="appRole",
        mount=mount_of(config.path, "approle", f"{pointer}/path"),
        who=(role_id,),
        body=fixed({"role_id": role_id, "secret_id": secret_id}),
        proof=digest(role_id, secret_id),
        advice="check the role id and the secret id, and whether the secret id has expired or is used up",
    )


def ldap(config: VaultPassword, secrets: Secrets) -> Method:
    return _password(config, secrets, "ldap", "ldap")


def user_pass(config: VaultPassword | OpenBaoUserPass, secrets: Secrets) -> Method:
    return _password(config, secrets, "userPass", "userpass")


def _password(config: VaultPassword | OpenBaoUserPass, secrets: Secrets, name: str, mount: str) -> Method:
    pointer = f"/auth/{name}"
    user = named(config.username, f"{pointer}/username", "the user who logs in")
    value = secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the password"))
    password = text(value, f"{pointer}/secretRef")
    ends_oddly = password != password.rstrip("\r\n")
    return Method(
        name=name,
        mount=mount_of(config.path, mount, f"{pointer}/path"),
        who=(user,),
        label=f'user "{user}"',
        body=fixed({"password": password}),
        proof=digest(user, value),
        user=quote(user, safe=""),
        pauses=PASSWORD_PAUSES,
        advice="check user name and password" + ("; the password ends with a line break" if ends_oddly else ""),
    )


def cert(config: VaultCert, secrets: Secrets) -> Method:
    pointer = "/auth/cert"
    certificate = secrets.secret(needed(config.client_cert, f"{pointer}/clientCert", "the certificate in PEM"))
    key = secrets.secret(needed(config.secret_ref, f"{pointer}/secretRef", "the key of the certificate in PEM"))
    role = config.vault_role.strip()
    return Method(
        name="cert",
        mount=mount_of(config.path, "cert", f"{pointer}/path"),
        who=(role,),
        label=f'role "{role}"' if role else "any role",
        body=fixed({"name": role} if role else {}),
        proof=digest(certificate, key),
        certificate=ClientCertificate(certificate, key),
        advice="check that a role of the auth method trusts the certificate, and that server is an https address",
    )
