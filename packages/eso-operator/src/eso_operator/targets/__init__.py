"""The Kubernetes objects that we maintain: the change is planned, then applied."""
