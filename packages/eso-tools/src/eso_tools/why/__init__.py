"""The state of one object and its cause: `eso why` and the dashboard show it. Never reads a value."""
