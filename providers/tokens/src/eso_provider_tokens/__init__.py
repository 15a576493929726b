"""Generators of access tokens: Quay, Cloudsmith, Grafana and BeyondTrust."""
