"""Which consistency level a recorded run has, and why not more.

A history is read and its claims are examined (`claims`); the `checker` looks for the source states
that each state of a view can show (`vector_search`, `serial_schedules`) and gives a verdict by
`levels`, which `explanation` puts into sentences. `temporal_join` and `recomputation` say what a
view should have been.
"""
