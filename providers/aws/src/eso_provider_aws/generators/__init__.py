"""Generators that ask AWS: logins for container registries, and temporary keys."""
