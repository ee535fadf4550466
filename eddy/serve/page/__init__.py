"""The page at `/`, and the client for live queries that it shares with other pages."""
