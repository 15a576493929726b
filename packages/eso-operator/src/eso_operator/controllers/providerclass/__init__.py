"""Provider classes: the handshake of each provider, and classes created for labelled Services.

controller   connects to the provider of a class and reports its handshake
status       from a handshake or an error to the status of the class                      pure
services     a class for every labelled Service
"""
