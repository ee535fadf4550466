"""SQL: statements become views and answers. `answer.py` and `build.py` are the ways in, `algebra.py` is the middle."""
