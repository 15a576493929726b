"""Forms whose parts are all in Secrets: universal, jwt, ldap."""

from __future__ import annotations

from eso_api.stores.infisical import InfisicalJwtAuth, InfisicalLdapAuth, InfisicalUniversalAuth
from eso_provider_infisical.auth.form import Form, Opened
from eso_sdk.loginbodies import fixed, text


def universal(config: InfisicalUniversalAuth, store: Opened) -> Form:
    place = "/auth/universalAuthCredentials"
    client = text(store, config.client_id, f"{place}/clientId")
    secret = text(store, config.client_secret, f"{place}/clientSecret")
    return Form(
        name="universalAuthCredentials",
        method="universal-auth",
        call="MachineIdentityLoginViaUniversalAuth",
        proof=(client, secret),
        body=fixed({"clientId": client, "clientSecret": secret}),
        advice="check client id and client secret, whether the secret has expired or used up its uses, and trusted IPs",
    )


def jwt(config: InfisicalJwtAuth, store: Opened) -> Form:
    place = "/auth/jwtAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    token = text(store, config.jwt, f"{place}/jwt")
    return Form(
        name="jwtAuthCredentials",
        method="jwt-auth",
        call="MachineIdentityLoginViaJwtAuth",
        proof=(identity, token),
        body=fixed({"identityId": identity, "jwt": token}),
        advice="check the identity id, and that its JWT auth accepts issuer, audience and subject of the token",
    )


def ldap(config: InfisicalLdapAuth, store: Opened) -> Form:
    place = "/auth/ldapAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    user = text(store, config.ldap_username, f"{place}/ldapUsername")
    password = text(store, config.ldap_password, f"{place}/ldapPassword")
    return Form(
        name="ldapAuthCredentials",
        method="ldap-auth",
        call="MachineIdentityLoginViaLdapAuth",
        proof=(identity, user, password),
        body=fixed({"identityId": identity, "username": user, "password": password}),
        advice="check the identity id, user and password, and the directory of its LDAP auth",
    )
