"""For tests that need whole processes: providers with certificates of their own, and `eso up` as its users run it."""
