"""Generators that need no network. So far only their API kinds, in `kinds.py`."""
