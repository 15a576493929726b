"""From a store reference to a checked target with credentials."""
