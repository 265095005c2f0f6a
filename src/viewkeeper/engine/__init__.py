"""The real world: views maintained on real databases, with threads, clocks and Spark.

The loop asks the maintainer to look, plan, sweep, commit and acknowledge. The sub-packages are the
stations: `settings`, `spark` and `connections` below all, `views` binds definitions, `capture`
looks, `batch` sweeps, `load` computes views from nothing, `algorithms` runs the papers' machines,
`group` takes a registry's order, `evolution` follows schema changes, `operations` reports and
verifies.
"""
