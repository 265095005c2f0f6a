"""From the sources to the ledger: what they have committed, and what they may forget.

`followed_tables` has everything captured that views read; a `lookout` looks at the sources and puts
what they report into the `Sightings`, from which batches take it. When all views have committed it,
the maintainer tells the sources (`Acknowledger`).
"""
