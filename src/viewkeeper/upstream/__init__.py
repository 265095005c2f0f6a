"""The views of another project as a source of this one.

`parent_project` reads the parent's ledger and head, `source` keeps the protocol of sources over
them; a lease keeps the parent from folding what a child still needs.
"""
