"""The test kit for controllers: virtual time, object builders, API servers. The runtime never imports it."""
