"""Dyno as a state machine: the loop of its paper's figure 11 around an algorithm of `maintain`."""
