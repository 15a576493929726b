"""The clouds of Microsoft: which authority issues tokens, and for which resource.

A token is sent only to hosts of the resource that it was issued for. Otherwise a store could name a host of its author
as `vaultUrl`, and receive a token of the provider's own identity there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from eso_api.stores.azure import AzureCustomCloud, AzureProvider
from eso_sdk.errors import invalid_config

CUSTOM: Final = "AzureStackCloud"


@dataclass(frozen=True, slots=True)
class Cloud:
    """Addresses of one cloud, without a slash at the end."""

    authority: str
    vaults: str
    """The resource of Key Vault, which tokens are issued for."""
    management: str = ""
    """The resource of the management API, whose tokens container registries accept."""
    queues: str = ""
    """The domain of storage queues."""

    @property
    def vault_scope(self) -> str:
        return f"{self.vaults}/.default"


CLOUDS: Final = {
    "PublicCloud": Cloud(
        "https://login.microsoftonline.com",
        "https://vault.azure.net",
        "https://management.core.windows.net/",
        "queue.core.windows.net",
    ),
    "USGovernmentCloud": Cloud(
        "https://login.microsoftonline.us",
        "https://vault.usgovcloudapi.net",
        "https://management.core.usgovcloudapi.net/",
        "queue.core.usgovcloudapi.net",
    ),
    "ChinaCloud": Cloud(
        "https://login.chinacloudapi.cn",
        "https://vault.azure.cn",
        "https://management.core.chinacloudapi.cn/",
        "queue.core.chinacloudapi.cn",
    ),
    "GermanCloud": Cloud(
        "https://login.microsoftonline.de",
        "https://vault.microsoftazure.de",
        "https://management.core.cloudapi.de/",
        "queue.core.cloudapi.de",
    ),
}

AUTHORITY_HOSTS: Final = tuple(urlsplit(cloud.authority).hostname or "" for cloud in CLOUDS.values())
VAULT_HOSTS: Final = tuple(f".{urlsplit(cloud.vaults).hostname}" for cloud in CLOUDS.values())
REGISTRY_HOSTS: Final = (".azurecr.io", ".azurecr.us", ".azurecr.cn", ".azurecr.de")
"""Hosts of Microsoft. Proofs of the provider's own identity go to others only if the administrator lists them."""


def cloud_of(config: AzureProvider) -> Cloud:
    """Return the cloud of a store."""
    if config.environment_type != CUSTOM:
        if config.custom_cloud_config is not None:
            raise invalid_config("/customCloudConfig", f"is for environmentType {CUSTOM} only; remove one of them")
        return CLOUDS[config.environment_type]
    if config.custom_cloud_config is None:
        raise invalid_config("/customCloudConfig", f"name the endpoints of the cloud, as environmentType is {CUSTOM}")
    return _custom(config.custom_cloud_config)


def registry_cloud(environment: str) -> Cloud:
    """Return the cloud of a container registry."""
    if environment not in CLOUDS:
        raise invalid_config("/environmentType", f"container registries are not supported in {environment}")
    return CLOUDS[environment]


def check_vault(url: str, cloud: Cloud) -> str:
    """Return the URL of a vault without its path, or refuse it if it is not of this cloud."""
    host, port = _host(url, "/vaultUrl")
    of = urlsplit(cloud.vaults).hostname or ""
    if host != of and not host.endswith(f".{of}"):
        raise invalid_config(
            "/vaultUrl",
            f"is not a vault of this cloud: tokens are issued for hosts of {of} and are sent to no others; correct"
            " vaultUrl or environmentType, or name the cloud in customCloudConfig",
        )
    return f"https://{host}{port}"


def _custom(named: AzureCustomCloud) -> Cloud:
    _host(named.active_directory_endpoint, "/customCloudConfig/activeDirectoryEndpoint")
    authority = named.active_directory_endpoint.rstrip("/")
    vaults = named.key_vault_endpoint
    if not vaults and named.key_vault_dns_suffix:
        vaults = f"https://{named.key_vault_dns_suffix.strip('.')}"
    if not vaults:
        return Cloud(authority, CLOUDS["PublicCloud"].vaults)
    _host(vaults, "/customCloudConfig/keyVaultEndpoint")
    return Cloud(authority, vaults.rstrip("/"))


def _host(url: str, field: str) -> tuple[str, str]:
    """Return host and port of an https URL; the port is empty, or begins with its colon."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise invalid_config(field, "is not a URL") from None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise invalid_config(field, "write an https URL with a host, such as https://NAME.vault.azure.net")
    return parts.hostname, port
