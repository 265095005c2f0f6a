"""What the warehouse knows of itself, in sealed files.

A plan is written before work, a record is the commit, the head is the newest state; versions of
definitions, the coordination of a group and the identity of the warehouse lie beside them.
"""
