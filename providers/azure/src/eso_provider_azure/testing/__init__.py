"""A server that speaks as Key Vault, Entra ID, instance metadata and a container registry, for tests."""
