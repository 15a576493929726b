"""Changes at AWS, received from a queue or found in listings."""
