"""The method cert: the TLS client certificate of the login's connection is the credential."""

from __future__ import annotations

from eso_api.stores.vault import VaultCert
from eso_provider_vault.auth.method import ClientCertificate, Method, Secrets, digest, fixed, mount_of, needed


def cert(config: VaultCert, secrets: Secrets) -> Method:
    place = "/auth/cert"
    certificate = secrets.secret(needed(config.client_cert, f"{place}/clientCert", "the certificate in PEM"))
    key = secrets.secret(needed(config.secret_ref, f"{place}/secretRef", "the key of the certificate in PEM"))
    role = config.vault_role.strip()
    return Method(
        name="cert",
        mount=mount_of(config.path, "cert", f"{place}/path"),
        who=(role,),
        label=f'role "{role}"' if role else "any role",
        body=fixed({"name": role} if role else {}),
        proof=digest(certificate, key),
        certificate=ClientCertificate(certificate, key),
        advice="check that a role of the auth method trusts the certificate, and that server is an https address",
    )
