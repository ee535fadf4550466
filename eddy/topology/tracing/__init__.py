"""Why a row is what it is: a plan evaluated from scratch over tables, and the rows that each row is made of."""
