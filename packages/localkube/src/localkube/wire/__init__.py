"""HTTP and what travels on it: framing, targets, options, bodies, forms of replies. Knows no objects and no storage."""
