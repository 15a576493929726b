"""The dashboard: a read-only web page with the state of all objects. Loaded only if `--dashboard-addr` is set."""
