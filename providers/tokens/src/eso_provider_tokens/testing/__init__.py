"""Servers that stand in for Quay, Cloudsmith, Grafana and BeyondTrust, for tests."""
