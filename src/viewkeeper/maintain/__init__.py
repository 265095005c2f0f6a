"""The algorithms, pure: events in, actions out.

`view_change` and `compensation` are written once and used by all; `algorithm_protocol` is what a
machine keeps, `algorithm_catalogue` lists them with their `promises`. One module per paper's name.
"""
