"""The eso command: parse, wire, print. What it does is in the libraries."""
