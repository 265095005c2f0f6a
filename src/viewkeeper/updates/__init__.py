"""What the engine and the algorithms know of a source: positions, cuts, lookups, answers.

`source_protocol` is the seam to databases; a `transaction` is what one commits; a `cut` says what
an answer shows; the `queue` holds the changes of a batch.
"""
