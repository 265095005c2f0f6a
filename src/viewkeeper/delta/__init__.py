"""Signed rows: the algebra that all maintenance is written in.

`algebra` says what an operator means, by equations; `reference_carrier` is that in plain Python,
`kernel` on Arrow. `evaluate` computes expressions exactly as Spark would, or refuses.
"""
