"""Headers by their names: what a delivery leaves behind, the types that Artemis needs, and values that brokers refuse."""
