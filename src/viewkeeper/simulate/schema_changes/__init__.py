"""Worlds in which tables change their shape while views are maintained.

The same steps as in any world, plus schema changes chosen at random; the judge compares with
recomputation over the shapes that held.
"""
