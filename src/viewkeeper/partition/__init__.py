"""Which views must agree on an order, and what that costs.

`view_graph` has who reads whom, `pyco` merges what must be atomic, `group_reasons` says why;
pictures are drawn by `svg_layout` and `svg_picture`.
"""
