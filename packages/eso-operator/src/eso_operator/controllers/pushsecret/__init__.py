"""The PushSecret controller: gather, decide, read the source, select, push, remove stale values, report."""
