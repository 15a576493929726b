"""Test material of the operator: a provider that does what a test says. Never imported in production."""
