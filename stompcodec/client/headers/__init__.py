"""Headers by their names: those of a delivery, the types that Artemis needs, and values that brokers do not take."""
