"""Schema changes, without any database: which order is legal, what a view becomes, what its rows
need.

`dependencies` and `correction` order changes, `dyno` runs the loop of the paper around an
algorithm, `synchronization` rewrites SQL, `adaptation` compares definitions; `policy`,
`preferences` and `extent` say what is allowed.
"""
