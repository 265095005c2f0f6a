"""Commands by which other programs read views: `changes_feed_command` writes lines for pipes."""
