"""Strobe and its relatives: actions are collected, deletes go by key, and the view waits for quiet.

`strobe` first; `t_strobe` and `g_strobe` know transactions, `c_strobe` and `c_t_strobe` are
complete. `conventional` is what goes wrong without compensation.
"""
