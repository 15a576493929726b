"""The Sprig functions, one family in a file."""

from gotmpl.signatures import Functions
from gotmpl.sprig import defaults, dicts, lists, numbers, strings, words

FUNCTIONS = Functions()
for _family in (strings, words, lists, dicts, defaults, numbers):
    FUNCTIONS.update(_family.FUNCTIONS)
