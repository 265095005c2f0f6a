"""The demonstration's judge, which knows nothing of the maintenance.

It takes the writers' journals and copies of the databases as evidence, computes what each state
should have been, and compares.
"""
