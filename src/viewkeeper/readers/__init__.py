"""What other programs read of views: feeds of changes, a data source of Spark, a Connect endpoint.

All of them start from the committed head and take no lock. `view_feed` is the idea that they share:
an exact place in the changes of a view. `feed_formats` writes a feed as lines of JSON.
"""
