"""GeneratorStates: generated values are cleaned up when their deadline passes, or when their owner is deleted."""
