"""Virtual time, throw-away certificates, and servers as child processes. Production code never imports it."""
