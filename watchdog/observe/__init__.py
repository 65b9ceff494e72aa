"""Sources: they look at the world and hand out observations. They know nothing of judges or actions."""
