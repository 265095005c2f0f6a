"""What the sources have committed, and what they may forget.

The lookout looks at all sources and gives a ts to what it takes; the acknowledgement says to each
source what no view will ask for again.
"""
