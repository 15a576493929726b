"""Validates stores, v2 generators and Provider objects of every kind, and says so on the object.

kinds         the eight kinds as values, so that one reconciler serves them all
reconciler    the story: gather, validate, report
validation    asks the provider, by way of resolver, credentials and gateway
verdict       what can come of it
outcome       the one table from a verdict to condition, event and requeue                pure
finalizer     whether a store must wait for PushSecrets                                   pure
triggers      when a store is looked at
"""
