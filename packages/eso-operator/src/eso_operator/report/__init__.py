"""Reports of controllers: status, events, metrics and log lines about an object."""
