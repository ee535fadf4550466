"""Where records come from and go to: the port `log`, and the logs behind it."""
