"""HTTP: targets, options, bodies, forms of replies. It is independent of objects and storage."""
