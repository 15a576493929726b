"""The test kit: a server that speaks the protocols of Google, and calls to a store."""
