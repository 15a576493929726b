"""From remote refs to shaped values: fetch, rewrite, convert, decode."""
