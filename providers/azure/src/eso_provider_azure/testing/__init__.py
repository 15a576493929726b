"""A server for the protocols of Key Vault, Entra ID, instance metadata and a container registry, for tests."""
