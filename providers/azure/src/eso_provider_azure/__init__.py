"""The Azure provider: secrets, keys and certificates of Key Vault, and logins for container registries."""
