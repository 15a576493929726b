"""The rules of the CRDs as pure functions, for controllers and the CLI.

A controller needs them because an older schema may have admitted an object. Each function returns every problem in a
fixed order; an empty list means the object is valid. A few rules exist only here, because the API server cannot check
them or because it must still accept existing manifests.
"""
