"""Changes of a project's files while it is maintained.

The road: `project_watch` notices that files are others than before and have come to rest;
`reload_desk` is where a reload is asked for, from any thread; `project_difference` says what two
readings of the files differ in; `project_reload` reads them, and lets the loop end its session
between two batches, so that the next one begins with what the files say now.
"""
