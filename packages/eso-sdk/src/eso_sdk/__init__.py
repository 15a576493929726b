"""What the author of a provider needs."""
