"""The Sprig functions, one family in a file."""

from gotmpl.signatures import Functions
from gotmpl.sprig import defaults, dicts, encoding, json, lists, numbers, paths, random, reflect, strings, words

FUNCTIONS = Functions()
for _family in (strings, words, lists, dicts, defaults, numbers, encoding, json, paths, random, reflect):
    FUNCTIONS.update(_family.FUNCTIONS)
