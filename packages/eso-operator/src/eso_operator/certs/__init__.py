"""Certificates of the channels to providers: issue, rotate, roll over."""
