"""For tests of the suite itself: a provider that violates the contract on request."""
