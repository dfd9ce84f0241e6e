"""What the store keeps, as tables: pure, and the same for every database."""
