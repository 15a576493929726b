"""Validates stores, v2 generators and Provider objects of every kind, and reports the result on the object.

kinds         the eight kinds as values, so that one reconciler serves them all
reconciler    the story: gather, validate, report
validation    calls the provider, through resolver, credentials and gateway
verdict       the possible results
outcome       the one table from a verdict to condition, event and requeue                pure
finalizer     whether a store must wait for PushSecrets                                   pure
triggers      when a store is reconciled
"""
