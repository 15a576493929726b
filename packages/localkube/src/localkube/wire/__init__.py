"""HTTP and what travels on it: targets, options, bodies, forms of replies. Knows no objects and no storage."""
