"""Values from any HTTP endpoint."""
