"""Credentials of a store: the forms of `auth`, each as a source of access tokens."""
