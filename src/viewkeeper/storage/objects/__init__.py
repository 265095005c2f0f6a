"""Warehouses in object storage: S3 and what speaks its language, Google Cloud Storage, Azure.

The road: `object_requests` are single requests to the service, with its retries and its errors;
`object_client` makes of them operations whose outcome is known, also where an answer was lost;
`object_lease` and `object_journal` are the lock and the commits; `object_storage` is all of it
behind the protocol that warehouses know, and `object_path` are its places.

Nothing here lists objects, or renames any, while a batch is committed.
"""
