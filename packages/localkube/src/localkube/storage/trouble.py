"""A data directory cannot be opened. Failures while serving are StatusErrors instead."""


class StorageError(Exception):
    """The message names the directory or file, the reason and the remedy; it never holds stored content."""
