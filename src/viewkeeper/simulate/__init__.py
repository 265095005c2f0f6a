"""A world from a seed: sources, channels, crashes, and any algorithm in it.

A scenario says what happens, the world performs steps in an order that chance chooses, and the
trace is a history for the checker. Sub-packages run campaigns, fleets, schema changes and scripts
on it.
"""
