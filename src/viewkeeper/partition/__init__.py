"""Which views must agree on an order, and what that costs.

`view_graph` has who reads whom, `pyco` merges what must be atomic and says why, `message_cost` what
that costs; `svg_picture` draws it.
"""
