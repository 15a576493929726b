"""The contract between the operator and its providers, as Python values and as protobuf."""
