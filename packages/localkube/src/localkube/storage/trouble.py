"""Why a data directory cannot be opened. Failures while serving are StatusErrors instead."""


class StorageError(Exception):
    """The message says which directory or file, what is wrong and what to do; it never holds stored content."""
