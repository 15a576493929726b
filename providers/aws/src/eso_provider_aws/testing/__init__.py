"""The test kit: real servers, a front that counts and refuses, and calls to a store."""
