"""AWS Certificate Manager: certificates that are exported, and certificates that are imported."""
