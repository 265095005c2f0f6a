"""Capture by logical decoding: from a replication slot into a spool.

`follow` makes the publication, the slot (`slot`, with what is found again after a restart) and the
event triggers (`ddl_watch`). A look (`source_stream`) opens the stream and lets `capture` read it:
frames come from `stream`, `pgoutput` makes signed rows of them, with the shapes that
`stream_shapes` keeps, and the spool holds them until they are acknowledged. `spool_reader` reads
the changes back, in the columns of `spooled_name`, and prepares snapshots, of which
`VisibleTransactions` says exactly what they see.
"""
