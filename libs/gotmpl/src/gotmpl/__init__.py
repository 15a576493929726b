"""Go text/template in Python."""
