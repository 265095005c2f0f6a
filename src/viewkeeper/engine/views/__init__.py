"""Definitions bound to tables, and which algorithm maintains each.

The catalogue has the views of a project, a binding is one on the tables as they are, the choice
fixes algorithm and hidden columns; troubles say what an error means for a view.
"""
