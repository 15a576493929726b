"""The rules of the CRDs once more, as pure functions for controllers and the CLI.

A controller needs them because an older schema may have let an object in. Each function returns every problem it finds,
in a fixed order; an empty list means the object is fine. A few rules exist only here, because the API server cannot
check them or because existing manifests must still be accepted.
"""
