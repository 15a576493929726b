"""Calls to provider processes: the table of calls, batches of reads, limits, channels."""
