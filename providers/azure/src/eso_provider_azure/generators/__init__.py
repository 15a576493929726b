"""Generators of Azure: logins for container registries."""
