"""View synchronization: the SQL of a view, rewritten for what its sources have become."""

from viewkeeper.evolution.synchronization.synchronize import (
    NoRewriting,
    Rewriting,
    synchronize_view,
)

__all__ = ["NoRewriting", "Rewriting", "synchronize_view"]
