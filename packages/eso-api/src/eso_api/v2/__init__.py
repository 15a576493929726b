"""Stores and generators whose provider runs in its own process (v2), and how to reach that process."""
