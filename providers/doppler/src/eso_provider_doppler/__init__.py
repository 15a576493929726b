"""The provider for Doppler."""
