"""Stores and generators whose provider runs in a process of its own (v2), and how that process is reached."""
