"""Black-box tests of a provider, over the wire."""
