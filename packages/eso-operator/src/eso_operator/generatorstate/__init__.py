"""GeneratorStates: what generators made is cleaned up when its time is over, or when its owner is gone."""
