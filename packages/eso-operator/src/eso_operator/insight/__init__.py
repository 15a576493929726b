"""The state of objects for people: `eso status`, `eso why` and the dashboard show it. Reads only, never values."""
