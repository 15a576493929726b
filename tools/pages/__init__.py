"""The pages of docs/reference, a module each: `page(DIR)` gives the text. `gen_docs.py` writes or compares them."""
