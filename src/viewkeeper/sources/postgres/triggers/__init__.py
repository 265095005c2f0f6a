"""PostgreSQL by triggers, where logical decoding is not allowed.

Functions and triggers are installed in a schema of our own, readers take from the log that they
write, and removal leaves nothing behind.
"""
