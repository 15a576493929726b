"""What is written to the cluster: decided, then done."""
