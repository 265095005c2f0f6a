"""Many seeds, the tables of what was found, and shrinking.

A campaign runs an algorithm through random worlds, compares the level with its promise, and shrinks
the first run that is below.
"""
