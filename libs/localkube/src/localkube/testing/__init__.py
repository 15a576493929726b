"""Code shared by tests of this package and of its users."""
