"""Certificates between the operator and its providers: issued, rotated and loaded.

values      credentials, names and times of certificates                            pure
authority   X.509: issue, parse and check certificates                              pure
bundle      the certificates of one Service as a state, and the kinds of steps      pure
planning    the steps that are due in a state                                       pure
issuance    the result of one step: new keys and certificates in memory
review      the question about the certificates of one Service, and its answer      pure
reviewing   answers the question: parse, plan, carry out
notary      asks a process, so that the operator need not load cryptography
notaryprocess   that process
secrets     the state as three Secrets, and the check which Secrets are ours        pure
issuer      the controller of the three Secrets of each provider Service
materials   the client certificates of channels, from the issuer or from the user
local       the same state machine over folders, for supervised processes and tests
problems    the named problems of certificates
settings    the settings of certificates, and the names in them
"""
