"""SQL: statements become views and answers.

It is entered through `answer.py` and `view_builder.py`; `algebra.py` has the data between the binder and the compilers.
"""
