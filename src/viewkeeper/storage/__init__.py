"""Files that can be relied on: how they are written, who may read them, whether to believe them.

`disk` writes durably and with the right permissions, `sealed_json` puts small JSON objects into an
envelope with a checksum, and `typed_json` turns what is in them into values of the types that they
should have. Everything that is kept under a warehouse's folder goes through here.

A warehouse lies on a disk or in object storage: `storage_protocol` says what is asked of either,
`local_storage` and `objects` answer, and `stored_files` asks the one in which a file lies.
`user_cache` is for what belongs to no warehouse and can be made again.
"""
