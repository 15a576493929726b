"""How a session logs in: one module for each family of methods, `choice.py` picks the method of a configuration."""
