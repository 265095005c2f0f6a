"""One module for each command, or for a few that belong together.

A command reads its options, calls the engine, the checker or the simulation, and shows what it
gets. Nothing is decided here that a Python program could not decide as well.
"""
