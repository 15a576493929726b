"""What tests of this package and of its users share."""
