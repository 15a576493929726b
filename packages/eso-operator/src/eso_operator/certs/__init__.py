"""Certificates between the core and its providers: issued, rotated and read here.

authority   X.509 itself: issue, look at, judge                                     pure
bundle      the certificates of one Service as a state, and what is due             pure
secrets     that state as three Secrets, and whose Secret is whose                  pure
issuer      a controller that keeps the three Secrets of each provider Service
materials   what a channel needs: the client's material, from us or from the user
local       the same state machine over folders, for supervised processes and tests
problems    everything that can be wrong, by name
"""
