"""A provider for Akeyless."""
