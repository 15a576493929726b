"""Provider for secrets of GitHub Actions and tokens of GitHub Apps."""
