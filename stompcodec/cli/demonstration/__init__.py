"""`make demo-broker`: a generated feed, decoded and sent through a broker."""
