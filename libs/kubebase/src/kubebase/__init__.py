"""Code shared by Kubernetes clients and by processes without one."""
