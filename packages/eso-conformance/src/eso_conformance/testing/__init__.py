"""For tests of the suite itself: a provider that breaks promises on request."""
