"""Logins of a session: `methods.py` has the methods; `login.py` selects the one of a configuration."""
