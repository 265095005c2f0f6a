"""Views that are maintained one at a time, by the state machine of an algorithm.

`algorithm_runner` brings a view up to date: it gives the entries of the ledger to the
`action_interpreter`, which does what the machine asks for. The `asker` asks the sources, several at
the same time; what the machine commits becomes records of the warehouse.
"""
