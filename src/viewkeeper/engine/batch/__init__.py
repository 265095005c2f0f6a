"""One batch: from entries of the ledger to files of the views.

`batch_runner` reads the changes once for all views, splits them into parts, and has each part swept
by `part_sweep`, inline or as a task (`run_on_spark`), with snapshots of the other sources
(`PreparedOpeners`) in the types of the view. Where rows went that nobody listed, `BarrierCrossing`
takes a view over that `barrier`. `change_archive` keeps changes for `verify`,
`HeldChanges` until the next flush.
"""
