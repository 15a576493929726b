"""Requeues of objects whose dependencies changed."""
