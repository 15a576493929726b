"""Generators (generators.external-secrets.io/v1alpha1): one kind for each file.

They make values instead of fetching them.
"""
