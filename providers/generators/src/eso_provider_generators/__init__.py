"""Generators that need no network: Password, UUID, SSHKey, MFA and Fake."""
