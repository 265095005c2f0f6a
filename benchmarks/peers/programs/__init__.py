"""What runs in a contestant's process: one program per system, and the words that all speak.

A program is started as `python -m benchmarks.peers.programs.NAME FOLDER` with the Python of its own
environment, loads the view from the databases in that folder, and then answers one line with one.
"""
