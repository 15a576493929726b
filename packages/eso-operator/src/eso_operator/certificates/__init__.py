"""Certificates between the operator and its providers: issued, rotated and loaded.

issuer          the controller of the three Secrets of each provider Service
client          the client certificates of channels, from the issuer or from the user
state           the certificates of one Service as a state, and the steps that change it    pure
secrets         that state as three Secrets, and the check which Secrets are ours           pure
worker          requests a review of certificates from a process, which loads cryptography
workerprocess   that process
issuance        the steps that are due, and their results: keys and certificates
authority       X.509: issue, parse and check certificates                                  pure
local           the same state machine over folders, for supervised processes and tests
problems        the named problems of certificates
settings        the settings of certificates, and the names in them
"""
