"""Generators (generators.external-secrets.io/v1alpha1), one file for each provider.

They generate values instead of fetching them.
"""
