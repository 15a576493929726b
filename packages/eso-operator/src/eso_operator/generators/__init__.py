"""Generated values, recorded until they are cleaned up."""
