"""The derivation of a row: a plan is evaluated from scratch over tables, with the rows from which each row is made."""
