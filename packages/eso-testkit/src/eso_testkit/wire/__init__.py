"""Test material for both ends of the contract. Production code never imports it."""
