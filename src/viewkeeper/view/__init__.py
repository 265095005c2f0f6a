"""What is maintained: SQL in, typed definitions, join trees and sweep plans out.

Nothing is re-exported: tasks import `definition` and `expression`, and must not pay for the SQL
parser that `parse` and `bind` need.
"""
