"""The paths of the protocol's calls, as gRPC sends them: `/package.Service/Method`."""

from __future__ import annotations

PACKAGE = "externalsecrets.provider.v2alpha1"

HANDSHAKE = f"/{PACKAGE}.ProviderInfo/Handshake"
VALIDATE = f"/{PACKAGE}.SecretStoreProvider/Validate"
GET = f"/{PACKAGE}.SecretStoreProvider/GetSecrets"
FIND = f"/{PACKAGE}.SecretStoreProvider/FindSecrets"
CHECK = f"/{PACKAGE}.SecretStoreProvider/CheckSecrets"
PUSH = f"/{PACKAGE}.SecretStoreProvider/PushSecrets"
DELETE = f"/{PACKAGE}.SecretStoreProvider/DeleteSecrets"
SUBSCRIBE = f"/{PACKAGE}.SecretStoreProvider/Subscribe"
CLOSE_SESSIONS = f"/{PACKAGE}.SecretStoreProvider/CloseSessions"
VALIDATE_GENERATOR = f"/{PACKAGE}.GeneratorProvider/ValidateGenerator"
GENERATE = f"/{PACKAGE}.GeneratorProvider/Generate"
CLEANUP = f"/{PACKAGE}.GeneratorProvider/Cleanup"


def short_name(path: str) -> str:
    """Return the name of a call for metrics and messages, such as `GetSecrets`."""
    return path.rpartition("/")[2]
