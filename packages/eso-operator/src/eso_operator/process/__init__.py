"""The dashboard of the operator process."""
