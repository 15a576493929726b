"""The Vault provider: key/value engines of HashiCorp Vault and OpenBao."""
