"""A project in a group that a registry orders.

Membership joins and stays; reports go up, the order comes down, and the group's lookout takes the
ids one by one when all sources that they move have shown them.
"""
