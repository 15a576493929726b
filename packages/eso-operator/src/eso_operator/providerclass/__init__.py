"""Controllers of provider classes and of the Services they follow from."""
