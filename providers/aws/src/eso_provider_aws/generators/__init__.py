"""Generators of AWS: logins for container registries, and temporary keys."""
