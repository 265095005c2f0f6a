"""Views follow the schema changes of their sources.

What waits for a view is scanned, decided by its policy, previewed or proposed where somebody must
agree, and then done in one record. A view that lost changes is anchored by a difference.
"""
