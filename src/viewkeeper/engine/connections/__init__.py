"""The sources of a project while it is open.

`open_sources` has every source, knows which is away and asks again later; what may hang is asked by
an `Errand`, a thread of its own. Every call goes through `guarded_source`, so that all that goes
wrong in a source is that source's error. `hold_logs` keeps logs for readers beside the maintainer.
"""
