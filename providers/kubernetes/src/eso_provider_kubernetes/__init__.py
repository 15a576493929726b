"""Secrets and other objects of Kubernetes clusters as a backend."""
