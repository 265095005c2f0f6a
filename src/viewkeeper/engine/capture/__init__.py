"""From the sources to the ledger: what they have committed, and what they may forget.

`followed_tables` has everything captured that views read; a `lookout` looks at the sources and puts
what they report into the `sightings`, from which batches take it. When all views have committed it,
`acknowledgement` tells the sources. `blocked_views` says why a view waits.
"""
