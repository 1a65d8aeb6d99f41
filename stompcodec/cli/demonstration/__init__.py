"""`make demo-broker`: an invented feed, decoded and sent through a broker."""
