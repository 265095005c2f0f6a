"""Commands that change the views of a project, whether or not `viewkeeper run` is running.

Each asks the maintainer by its socket, if there is one, and otherwise takes the warehouse's lock
and does the same itself.
"""
