"""Test kits of this repository: the operator, its command, its tools and its wire, set up for tests. Not published."""
