"""The same for many warehouses: base and view consistency over the histories of a fleet.

A fleet's history is read, examined state by state, and the verdict is explained in sentences.
"""
