"""SWEEP and its relatives: one relation after the other, each answer compensated locally.

`sweep` first, then `nested_sweep`, the parallel `pvm` and `pvm_cc`; `batch_sweep` is ours, and
maintains a whole batch as of every ts.
"""
