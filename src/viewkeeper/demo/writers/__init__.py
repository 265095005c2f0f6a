"""Processes that write to the demonstration's databases as fast as they are told to.

`paced_writer` has what all of them share; the others know one kind of database each.
"""
