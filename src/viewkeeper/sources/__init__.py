"""One folder for each kind of database, all behind one protocol.

`kinds` finds a kind by its word in the project file; `tables` has types and shapes of tables,
`stream` the spool of what can be read only once, for all kinds; `memory` is a source for tests.
"""
