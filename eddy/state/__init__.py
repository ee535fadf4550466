"""What operators remember: stores of bytes, and above them typed tables and arrangements."""
