"""What sources share that read a stream only once.

The spool keeps decoded changes in files until they are acknowledged; nothing in it is durable,
since the stream delivers again.
"""
