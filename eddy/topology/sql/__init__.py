"""SQL: turns statements into views and answers.

The entry points are `answer.py` and `view_builder.py`; `algebra.py` has the data that the binder gives the compilers.
"""
