"""The operator process: flags, settings, informers, and the wiring of all parts."""
