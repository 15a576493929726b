"""Certificates between the operator and its providers: issued, rotated and loaded.

authority   X.509: issue, parse and check certificates                              pure
bundle      the certificates of one Service as a state, and the steps that are due  pure
issuance    the result of one step: new keys and certificates in memory
secrets     the state as three Secrets, and the check which Secrets are ours        pure
issuer      the controller of the three Secrets of each provider Service
materials   the client certificates of channels, from the issuer or from the user
local       the same state machine over folders, for supervised processes and tests
problems    the named problems of certificates
settings    the settings of certificates, and the names in them
"""
