"""Test material for both ends of the contract. Never imported by the operator or a provider in production."""
