"""Bodies: what the body of a message looks like to a subscription that asks for another form."""
