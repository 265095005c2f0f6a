"""Commands by which other programs read views: `changes_feed_command` writes lines for pipes,
`serve_command` is an endpoint for Spark Connect.
"""
