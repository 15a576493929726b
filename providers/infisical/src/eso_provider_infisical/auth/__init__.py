"""The forms of `auth`: how each logs in as a machine identity."""
