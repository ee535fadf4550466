"""State: stores of bytes, and typed tables and arrangements on top of them."""
