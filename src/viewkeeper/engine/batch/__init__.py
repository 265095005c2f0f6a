"""One batch: changes read once, split into parts, swept, gathered.

The runner fills the update queue and prepares snapshots; each part is swept by one function, inline
or in a Spark task; what the parts give becomes one change per view. A barrier is a transaction that
a batch must not pass.
"""
