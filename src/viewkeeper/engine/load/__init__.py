"""Views computed from nothing, as of a ts, while writers go on.

The loader chooses positions that the ledger has, one Spark job reads and joins, and what it saw
beyond them is taken back. The same recomputation verifies.
"""
