"""From the text of a view to its definition.

The text is parsed and checked against what is allowed, names are bound in their scope, types
coerced, conditions and outputs translated; what cannot be maintained is refused with its place.
"""
