"""Views whose sources change their shape, or lose what views still need.

`schema_decision` decides what a view becomes, `proposals` asks somebody where that is wanted and
`preview` shows what it would do; the `view_adapter` brings the view there. `anchors` does the same
for gaps. Views that need other rows, and new ones, are loaded by `view_loads`.
"""
