"""Generators (generators.external-secrets.io/v1alpha1), one kind per file.

They generate values instead of fetching them.
"""
