"""The operator: the domain in motion."""
