"""Provider for CI/CD variables and deploy tokens of GitLab."""
