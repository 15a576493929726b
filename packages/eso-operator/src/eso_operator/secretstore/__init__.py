"""Controllers of every kind of store."""
