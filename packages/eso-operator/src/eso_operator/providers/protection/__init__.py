"""Limits that protect providers, backends and the operator: retries, budgets, circuit breakers, slots, bytes."""
