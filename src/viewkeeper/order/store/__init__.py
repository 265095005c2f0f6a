"""The store of a registry, and the road of a call through it.

`stored_registry` is the face. It hands a call to the part that knows about it: `StoreOwnership`
(which service may write), `stored_groups` (who joins and leaves, which groups follow) or
`stored_order` (who reports, and the numbers). All of them hold a group by `group_rows`, in a
transaction of the database: `sqlite_store` or `postgres_store`, as `StoreDatabase` describes.
"""
