"""The rows that a recursion holds are left out of the comparison with a worker's states.

The row of a cycle at which the waves stop depends on arrival order. So if a recursion holds rows, X is compared only
for keys that no cycle reaches, and `-held`, `-reached` and the states inside op are not compared. Outputs and all other
states do not depend on arrival order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.changelog import ComputedResults, changelog_rows
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.operators.circuit import Circuit
from eddy.operators.waves.recursion import Waves

__all__ = ["HeldRows", "key_part"]


def key_part(row: Column) -> Column:
    """Return the first part of the store key of a row of an arrangement or a trace: the row's key after its length."""
    length = f.least(f.conv(f.hex(f.substring(row, 1, 4)), 16, 10).cast("long"), f.lit(2**30)).cast("int")
    return row.substr(f.lit(1), length + 4)


@dataclass(frozen=True)
class HeldRows:
    """The states of recursions that hold rows, and of which some keys, or all, are not compared.

    `reached` has, by the name of the state of a recursion's rows, the keys that cycles reach, in the form of
    `key_part`. `skipped` has the states that are not compared at all, with the reasons.
    """

    reached: Mapping[str, DataFrame]
    skipped: Mapping[str, str]

    @classmethod
    def of(cls, circuit: Circuit, results: ComputedResults, frames: Frames) -> "HeldRows":
        """Find the held rows in the results of a computation."""
        reached: dict[str, DataFrame] = {}
        skipped: dict[str, str] = {}
        for recursion in circuit.recursions.values():
            if not isinstance(recursion, Waves) or recursion.quarantine is None:
                continue
            x, *others = (state.spec.name for state in recursion.own_states())
            if others[-1] not in results.states:
                continue
            rows = frames.kept(changelog_rows(results.states[others[-1]]).select(key_part(f.col("key")).alias("group")))
            with spark_errors():
                if rows.first() is None:
                    continue
            reached[x] = rows.distinct()
            others += [state.spec.name for state in recursion.body.states() if state.spec.name != x]
            why = f"not compared: recursion '{recursion.name}' holds rows, and which of them depends on arrival order"
            skipped |= dict.fromkeys(others, why)
        return cls(reached, skipped)
