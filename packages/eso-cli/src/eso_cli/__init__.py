"""The eso command: parses arguments, calls the libraries, prints their results."""
