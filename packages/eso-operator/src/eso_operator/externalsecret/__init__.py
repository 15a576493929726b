"""The ExternalSecret controller."""
