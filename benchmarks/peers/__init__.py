"""The race: one workload, several systems, each in an environment and a process of its own.

`workload` makes the data and the changes and knows the right answer, `installation` makes the
environments, `contestant_process` drives a process, `programs` are what runs in it, and `race` lets
one after the other run.
Nothing here is imported by Viewkeeper, and the programs import nothing but their own system.
"""
