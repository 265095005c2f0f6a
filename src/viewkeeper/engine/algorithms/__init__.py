"""The papers' state machines on real databases.

A runner brings one view up to date from the ledger's entries; an interpreter carries out the
actions of its machine; questions are asked in threads of their own.
"""
