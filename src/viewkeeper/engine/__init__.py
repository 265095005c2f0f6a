"""The engine: keeps the views of a project fresh.

A `Project` is the folder that a user has. `loop` decides when to look, when to form a batch and
when to stop; the `Maintainer` looks, plans, sweeps, commits and acknowledges. What they work with
lies below them, each part knowing only those before it:

    settings < spark, connections, report < views < capture < batch < load, algorithms, group
             < evolution < maintainer, upkeep < loop < operations, query, view < project

`tests/test_layering.py` keeps that order.
"""
