"""The fake provider: secrets from its own configuration, memory for what is pushed, and faults on request."""
