"""A project as a member of a group: its transactions come in the order of a registry.

`group_lookout` makes the lookout of a project. In a group the `membership` says which group and
what others read, the `order_client` speaks with the registry and decides who reports a source,
`received_sources` keep what has not had its turn, and parents are compared before a view is loaded.
`group_status` is for people.
"""
