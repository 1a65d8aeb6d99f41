"""The source "stomp", with a spool on the driver."""
