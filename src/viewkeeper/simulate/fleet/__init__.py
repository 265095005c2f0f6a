"""Many warehouses in one simulated world.

Members join, take the order of their registry, die and come back; mistakes can be planted, and the
fleet's checker must find them.
"""
