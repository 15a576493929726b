"""The PushSecret controller: gather, decide, read the source, select, push, remove what is stale, report."""
