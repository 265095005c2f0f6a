"""Many warehouses that agree: one order for each group of views, and which groups."""
