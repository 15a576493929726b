"""Test material of the operator, such as scripted providers. Never imported in production."""
