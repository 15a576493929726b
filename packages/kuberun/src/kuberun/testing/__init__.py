"""What tests of controllers need: virtual time, object builders, API servers. Nothing in the runtime imports it."""
