"""View synchronization: the SQL of a view, rewritten for what its sources have become."""

from viewkeeper.evolution.synchronization.synchronize import Impossible, Rewriting, synchronize

__all__ = ["Impossible", "Rewriting", "synchronize"]
