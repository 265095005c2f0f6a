"""The binlog of a MariaDB server, from packets to changes.

The road: `log` asks for the log and reads packets; `event_frames` makes events of them, and reads
what the events of a transaction say. `stream` makes transactions of events: `table_map` describes
the table of rows, `rows` cuts their images into values, `raw_values` reads whole columns of them,
`transactions` brings them to the spool in commit order. Meanwhile `shape_tracker` follows the
shapes of tables, and compares them with the server now and then. `capture` has the one stream of a
source and describes its tables, `spooled_changes` reports from its spool. A snapshot has a stream
of its own for its tail.
"""
