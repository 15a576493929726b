"""Logs and metrics of the operator."""
