"""What users ask of a maintainer while it runs: to load a view again, to drop one.

A request comes in at the maintainer's socket, in a thread of its own. It is put into the mailbox
(`run_requests`), and the loop answers it between two rounds, in the thread that maintains. So a
request finds the warehouse between two commits, and nothing else goes on meanwhile. What a request
does is in a module of its own (`view_refresh`, `view_drop`); without a running maintainer the
commands take the lock and do the same.
"""
