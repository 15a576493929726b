"""Provider for 1Password."""
