"""The fake provider: secrets from its own configuration, pushed values in memory, and faults on request."""
