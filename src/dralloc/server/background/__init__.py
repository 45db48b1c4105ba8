"""What the server changes by itself: garbage, events that expire, default accounts, aggregated roles."""
