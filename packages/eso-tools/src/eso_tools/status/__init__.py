"""The state of all objects, and whether an operator works, for `eso status` and the dashboard. Never reads a value."""
