"""Logins of a session: one module for each family of methods; `choice.py` selects the method of a configuration."""
