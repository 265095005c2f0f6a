"""Reading and changing the rows of a view.

States as of a ts are sums of signed rows; deletes by key and replacements are evaluated against
what is stored before they are written.
"""
