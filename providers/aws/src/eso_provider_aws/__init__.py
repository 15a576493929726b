"""The AWS provider: Secrets Manager and Parameter Store. So far only its API kinds, in `kinds.py`."""
