"""What people and pipelines do with an operator from outside: plan a change, migrate to v2, check a cluster."""
