"""Provider classes: the handshake of each provider, and classes created for labelled Services.

reconciler   connects to the provider of a class and reports its handshake
outcome      from an answer or an error to the status of the class                        pure
services     a class for every labelled Service
"""
