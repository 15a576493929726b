"""The messages as values, one subject in a module. `eso_wire.values` has all of them."""
