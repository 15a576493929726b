"""For tests of migrations: objects and conversions in memory."""
