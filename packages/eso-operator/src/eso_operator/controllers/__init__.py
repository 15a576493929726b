"""The controllers: one for each kind of object."""
