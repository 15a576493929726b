"""Validates stores, v2 generators and Provider objects of every kind, and reports the result on the object.

controller    watches and reconcile, the same for all kinds
kinds         the eight kinds as values
sync          calls the provider, through resolver, credentials and gateway; its verdict is a value
status        the one table from a verdict to condition, event and requeue                pure
finalizer     whether a store must wait for PushSecrets, and its finalizer
"""
