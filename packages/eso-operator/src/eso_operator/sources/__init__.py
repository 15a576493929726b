"""The entries of an ExternalSecret and their values."""
