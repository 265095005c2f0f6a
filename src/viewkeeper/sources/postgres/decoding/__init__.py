"""PostgreSQL by logical decoding: slot, stream, transactions, shapes.

The stream's messages are decoded and kept in the spool; the visible transactions say which of them
a snapshot shows; shapes follow the relation messages and a watch on statements.
"""
