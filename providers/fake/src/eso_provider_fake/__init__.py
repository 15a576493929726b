"""The fake provider: secrets from its own configuration. So far only its API kinds, in `kinds.py`."""
