"""Methods with an id or user name and a secret: appRole, ldap, userPass."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from eso_api.stores.openbao import OpenBaoAppRole, OpenBaoUserPass
from eso_api.stores.vault import VaultAppRole, VaultPassword
from eso_provider_vault.auth.method import Method, Secrets, digest, fixed, line, mount_of, named, needed, text
from eso_sdk.errors import invalid_config
from eso_sdk.refusals import Pauses

PASSWORD_PAUSES: Final = Pauses(first=60.0, longest=900.0)
"""Vault locks a user after five failures within 15 minutes."""


def app_role(config: VaultAppRole | OpenBaoAppRole, secrets: Secrets) -> Method:
    place = "/auth/appRole"
    secret_id = line(
        secrets.secret(needed(config.secret_ref, f"{place}/secretRef", "the secret id")), f"{place}/secretRef"
    )
    if config.role_id.strip():
        role_id = config.role_id.strip()
    elif config.role_ref is not None:
        role_id = line(secrets.secret(config.role_ref), f"{place}/roleRef")
    else:
        raise invalid_config(place, "needs roleId, or roleRef with the Secret and the key that hold the role id")
    return Method(
        name="appRole",
        mount=mount_of(config.path, "approle", f"{place}/path"),
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
    place = f"/auth/{name}"
    user = named(config.username, f"{place}/username", "the user who logs in")
    value = secrets.secret(needed(config.secret_ref, f"{place}/secretRef", "the password"))
    password = text(value, f"{place}/secretRef")
    ends_oddly = password != password.rstrip("\r\n")
    return Method(
        name=name,
        mount=mount_of(config.path, mount, f"{place}/path"),
        who=(user,),
        label=f'user "{user}"',
        body=fixed({"password": password}),
        proof=digest(user, value),
        user=quote(user, safe=""),
        pauses=PASSWORD_PAUSES,
        advice="check user name and password" + ("; the password ends with a line break" if ends_oddly else ""),
    )
