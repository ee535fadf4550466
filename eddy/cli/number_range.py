"""The type of options for seconds and tolerances: a range of numbers without nan."""

import math
from typing import Any

import click

__all__ = ["NumberRange"]


class NumberRange(click.FloatRange):
    """A range of numbers. It refuses nan, which is neither below nor above a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises: click.BadParameter."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number; one {self._describe_range()} is needed.", param, ctx)
        return found
