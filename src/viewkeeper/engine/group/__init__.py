"""A project as a member of a group: its transactions come in the order of a registry.

`lookout_choice` makes the lookout of a project. In a group that is the `group_lookout`: the
`membership` says which group and what others read, the `order_client` speaks with the registry,
`reporter_claims` decides who reports a source, an `inbox` keeps what has not had its turn, and
`source_agreement` compares parents before a view is loaded. `group_status` is for people.
"""
