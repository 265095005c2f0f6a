"""Open sources, and a guard around each.

Whatever a source raises becomes an error that names it; what may hang is asked in an errand, a
thread of its own, so that nobody else waits.
"""
