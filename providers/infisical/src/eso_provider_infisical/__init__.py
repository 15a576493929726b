"""The provider for Infisical."""
