"""The test kit: a real OpenBao server, and servers that misbehave."""
