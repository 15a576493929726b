"""What changed at AWS: told by a queue, or found by looking."""
