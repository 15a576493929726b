"""What an operator would change, found out without changing it: for `eso plan`."""
