"""AWS Parameter Store."""
