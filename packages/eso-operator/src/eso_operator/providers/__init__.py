"""Calls to provider processes: channels, retries, budgets, the read planner."""
