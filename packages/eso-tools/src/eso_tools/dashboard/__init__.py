"""The dashboard: a read-only web page with the state of all objects, in a process of its own."""
