"""The source "stomp", with a spool on the driver or by replaying the broker's queue."""
