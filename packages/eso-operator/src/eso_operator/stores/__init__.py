"""Resolves references to stores and generators, of any form, to checked stores with their credentials."""
