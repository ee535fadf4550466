"""Random queries over e(a, b), t(a, b, s) and u(a, c), which are small and have nulls; all columns but s are integers.

Three in ten queries recur; every recursion ends, by a bound or since its values are those of the tables. Names of
queries and aliases are words that eddy's own names of steps are made of. About one query in eight has a clause that
eddy refuses.
"""

import random
from typing import Any

COLUMNS = {
    "e": {"a": "integer", "b": "integer"},
    "t": {"a": "integer", "b": "integer", "s": "text"},
    "u": {"a": "integer", "c": "integer"},
}
_WORDS = ["ab", "b%", "Abc", "", None]
_NAMES = [
    *["q", "r", "n", "Group", "left", "join", "seed", "step", "variable", "block", "query", "rows", "one-row", "limit"],
    *[
        "e-join",
        "a b",
        "a_b",
        "only",
        "match",
        "distinct",
        "union",
        "query-1",
        "held",
        "errors",
        "values",
        "from",
        "seen",
    ],
]
_SET_WORDS = ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]

Relations = dict[str, list[str]]
"""The integer columns of each relation that a query can name."""


def tables(dice: random.Random) -> dict[str, Any]:
    """Rows of the three tables."""

    def number() -> int | None:
        return None if dice.random() < 0.15 else dice.randrange(4)

    rows: dict[str, list[tuple[Any, ...]]] = {
        "e": [(number(), number()) for _ in range(dice.randrange(7))],
        "t": [(number(), number(), dice.choice(_WORDS)) for _ in range(dice.randrange(7))],
        "u": [(number(), number()) for _ in range(dice.randrange(7))],
    }
    return {name: (COLUMNS[name], rows[name]) for name in rows}


def query(dice: random.Random) -> str:
    """A whole query."""
    writer = _Writer(dice)
    there = {"e": ["a", "b"], "t": ["a", "b"], "u": ["a", "c"]}
    made = writer.recursive(there) if dice.random() < 0.3 else writer.query(there, 2)
    if dice.random() < 0.1:
        first, second = (dice.choice(["", " NULLS FIRST", " NULLS LAST"]) for _ in "xy")
        made = f"SELECT * FROM ({made}) whole ORDER BY 1 DESC{first}, 2{second} LIMIT {dice.randrange(5)}"
    return made


class _Writer:
    """Writes queries of two integer columns x and y."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def _one_in(self, number: int) -> bool:
        return self._dice.randrange(number) == 0

    def _name(self, taken: Any = ()) -> str:
        """A quoted name that is not taken."""
        return self._dice.choice([quoted for name in _NAMES if (quoted := f'"{name}"') not in taken])

    def query(self, there: Relations, depth: int) -> str:
        """A query, perhaps with common table expressions, or a set operation."""
        if depth and self._one_in(6):
            name = self._name(there)
            inner = self.query(there, depth - 1)
            body = self.query({**there, name: ["x", "y"]}, depth - 1)
            return f"WITH {name}(x, y) AS ({inner}) {f'({body})' if body.startswith('WITH') else body}"
        if depth and self._one_in(6):
            sides = [self.query(there, depth - 1) for _ in "ab"]
            return f" {self._dice.choice(_SET_WORDS)} ".join(f"({side})" for side in sides)
        return self.select(there, depth)

    def recursive(self, there: Relations) -> str:
        """WITH RECURSIVE, with one or two recursive tables, and a query over them."""
        made, names = [], []
        for _ in range(self._dice.choice([1, 1, 2])):
            name = self._name(there)
            made.append(f"{name}(x, y) AS ({self._loop(there, name)})")
            there = {**there, name: ["x", "y"]}
            names.append(name)
        whole = " UNION ALL ".join(f"SELECT x, y FROM {name}" for name in names)
        body = whole if self._one_in(2) else self.query(there, 1)
        return f"WITH RECURSIVE {', '.join(made)} {f'({body})' if body.startswith('WITH') else body}"

    def _loop(self, there: Relations, name: str) -> str:
        """A seed and a step. The second column counts to a bound, or both columns are those of tables."""
        alias, edges = self._name(), self._name()
        while edges == alias:
            edges = self._name()
        if self._one_in(3):
            seed = self._dice.choice(["SELECT a, b FROM e", "SELECT a, c FROM u", "VALUES (1, 1), (0, 2)"])
            source = f"FROM {name} {alias} JOIN e {edges} ON {alias}.y = {edges}.a"
            return f"{seed} UNION {self._around(f'SELECT {alias}.x, {edges}.b {source}', there, name)}"
        word = self._dice.choice(["UNION", "UNION ALL"])
        seed = self._dice.choice(["SELECT 0, 0", "VALUES (0, 0), (1, 1)", "SELECT a, 0 FROM e", "SELECT a, 1 FROM u"])
        table, columns = self._dice.choice([("e", ["a", "b"]), ("u", ["a", "c"]), ("t", ["a", "b"])])
        ours, theirs = [f"{alias}.x", f"{alias}.y"], [f"{edges}.{column}" for column in columns]
        bound = f"{alias}.y < {self._dice.randrange(2, 5)}"
        kind = self._dice.randrange(8)
        source, values = f"{name} {alias}", ours
        if kind in {0, 1, 2}:
            source, values = f"{source} JOIN {table} {edges} ON {alias}.x = {theirs[0]}", [*ours, *theirs]
        elif kind == 3:
            source, values = f"{table} {edges}, {source}", [*ours, *theirs]
            bound += f" AND {theirs[0]} {self._dice.choice(['>', '='])} {alias}.x"
        elif kind == 4:
            inner = f"(SELECT a AS x, count(*)::integer AS m FROM {table} GROUP BY a)"
            source, values = f"{source} LEFT JOIN {inner} {edges} ON {alias}.x = {edges}.x", [*ours, f"{edges}.m"]
        elif kind == 5:
            source, values = f"{source}, generate_series(0, 2) {edges}(k)", [*ours, f"{edges}.k"]
            bound += f" AND {edges}.k <= {alias}.x"
        if self._one_in(4):
            bound += f" AND {self._condition([alias + '.x'], there, 1)}"
        step = f"SELECT {self._number(values, 1)}, {alias}.y + 1 FROM {source} WHERE {bound}"
        return f"{seed} {word} {self._around(step, there, name)}"

    def _around(self, step: str, there: Relations, name: str) -> str:
        """A step, with the recursive table or the rows of the step under another name; now and then not linear."""
        inner, other = self._name({*there, name}), self._name()
        kind = self._dice.randrange(12)
        if kind == 0:
            return f"(WITH {inner} AS (SELECT * FROM {name}) {step.replace(f' {name} ', f' {inner} ')})"
        if kind == 1:
            return f"SELECT * FROM ({step}) {other}(x, y)"
        if kind == 2:
            return f"(WITH {inner}(x, y) AS ({step}) SELECT y - 1, y FROM {inner} WHERE x IS NOT NULL)"
        if kind == 3:
            rest = self._dice.choice(["max(x), min(y)", "count(*)::integer, min(y)", "min(x), max(y)"])
            return f"(WITH {inner}(x, y) AS ({step}) SELECT {rest} FROM {inner} HAVING max(y) IS NOT NULL)"
        if kind == 4:
            return f"SELECT v.x, q.y FROM ({step}) q(x, y), (VALUES (1), (2)) v(x)"
        return step

    def select(self, there: Relations, depth: int) -> str:
        """A SELECT."""
        source, columns = self._from(there, depth)
        where = f" WHERE {self._condition(columns, there, depth)}" if self._one_in(2) else ""
        rest = f"FROM {source}{where}"
        one, other = self._number(columns, 1), self._number(columns, 1)
        kind = self._dice.randrange(12)
        if kind == 0:
            return f"SELECT DISTINCT {one} AS x, {other} AS y {rest}"
        if kind in {1, 2, 3}:
            having = self._dice.choice(["", "", " HAVING count(*) > 1", f" HAVING max({other}) > 0"])
            return f"SELECT {one} AS x, {self._aggregate(other)} AS y {rest} GROUP BY 1{having}"
        if kind == 4:
            return f"SELECT {self._aggregate(one)} AS x, {self._aggregate(other)} AS y {rest}"
        if kind == 5:
            inner = f"SELECT max(v.c) FROM u v WHERE v.a = {self._dice.choice(columns)}"
            return f"SELECT {one} AS x, ({inner}) AS y {rest}"
        if kind == 6 and self._one_in(4):
            ranked = self._dice.choice(["row_number() OVER (ORDER BY {0}, {1})", "count(*) OVER (PARTITION BY {0})"])
            return f"SELECT {one} AS x, {ranked.format(one, other)}::integer AS y {rest}"
        if kind == 7:
            return f"(SELECT {one} AS x, {other} AS y {rest} {self._limit()})"
        return f"SELECT {one} AS x, {other} AS y {rest}"

    def _limit(self) -> str:
        """The first rows by both columns, so that it is said which ones these are."""
        words = [[" ASC", " DESC", ""], [" NULLS FIRST", " NULLS LAST", ""]]
        keys = [place + "".join(map(self._dice.choice, words)) for place in self._dice.choice(["12", "21"])]
        offset = f" OFFSET {self._dice.randrange(3)}" if self._one_in(3) else ""
        return f"ORDER BY {', '.join(keys)} LIMIT {self._dice.randrange(1, 4)}{offset}"

    def _aggregate(self, value: str) -> str:
        if self._one_in(2):
            return self._dice.choice(["min({0})", "max({0})", "count(DISTINCT {0})"]).format(value)
        kinds = ["count({0})", "count(*)", "sum({0})", "sum(DISTINCT {0})", "count(*) FILTER (WHERE {0} > 1)"]
        return f"({self._dice.choice([*kinds, 'min({0}) + count(*)']).format(value)})::integer"

    def _from(self, there: Relations, depth: int) -> tuple[str, list[str]]:
        """One to three relations under aliases, joined; and their columns."""
        taken: list[str] = []
        words: list[str] = []
        source, columns = self._relation(there, depth, taken)
        for _ in range(self._dice.choice([0, 0, 1, 1, 2])):
            other, theirs = self._relation(there, max(depth - 1, 0), taken)
            word = self._dice.choice(
                [", ", " CROSS JOIN ", " JOIN ", " JOIN ", " LEFT JOIN ", " RIGHT JOIN ", " FULL JOIN "]
            )
            if ", " in words or (word == ", " and words):
                word = ", " if ", " in words else " CROSS JOIN "  # a comma binds less tightly than JOIN
            words.append(word)
            on = ""
            if word.endswith(" JOIN ") and "CROSS" not in word:
                sign = "=" if word == " FULL JOIN " else self._dice.choice(["=", "=", "=", "<", ">="])
                on = f" ON {self._dice.choice(columns)} {sign} {self._dice.choice(theirs)}"
                if word != " FULL JOIN " and self._one_in(4):
                    on += f" AND {self._predicate([*columns, *theirs])}"
            source, columns = f"{source}{word}{other}{on}", [*columns, *theirs]
        return source, columns

    def _relation(self, there: Relations, depth: int, taken: list[str]) -> tuple[str, list[str]]:
        alias = self._name(taken)
        taken.append(alias)
        kind = self._dice.randrange(10)
        if depth and kind < 3:
            return f"({self.query(there, depth - 1)}) {alias}(x, y)", [f"{alias}.x", f"{alias}.y"]
        if kind == 3:
            return f"(VALUES (1, 2), (0, NULL), (2, 2)) {alias}(x, y)", [f"{alias}.x", f"{alias}.y"]
        if kind == 4:
            return f"generate_series(0, {self._dice.randrange(3)}) {alias}(k)", [f"{alias}.k"]
        if kind == 5:
            least = self._dice.choice(["min(b)", "max(b)", "count(DISTINCT b)"])
            return f"(SELECT a, {least} FROM e GROUP BY a) {alias}(x, y)", [f"{alias}.x", f"{alias}.y"]
        own = [name for name in there if name not in COLUMNS]
        name = self._dice.choice(own) if own and self._one_in(2) else self._dice.choice(list(there))
        return f"{name} {alias}", [f"{alias}.{column}" for column in there[name]]

    def _number(self, columns: list[str], depth: int) -> str:
        if not depth or self._one_in(2):
            return str(self._dice.choice([*columns, *columns, "1", "0"]))
        one, other = self._number(columns, depth - 1), self._number(columns, depth - 1)
        forms = [
            "({0} + {1})",
            "({0} - {1})",
            "coalesce({0}, {1})",
            "abs({0} - {1})",
            "least({0}, {1})",
            "greatest({0}, 1)",
        ]
        forms += ["CASE WHEN {0} > {1} THEN {0} ELSE 2 END", "({0} % nullif({1}, 0))", "nullif({0}, {1})"]
        return str(self._dice.choice(forms).format(one, other))

    def _predicate(self, columns: list[str]) -> str:
        one, other = self._number(columns, 1), self._number(columns, 1)
        forms = ["{0} = {1}", "{0} <> {1}", "{0} < {1}", "{0} >= {1}", "{0} IS NULL", "{0} IS NOT NULL"]
        forms += ["{0} IS DISTINCT FROM {1}", "{0} BETWEEN 0 AND {1}", "{0} NOT IN (1, {1})", "({0} > 0 OR {1} = 1)"]
        return str(self._dice.choice(forms).format(one, other))

    def _condition(self, columns: list[str], there: Relations, depth: int) -> str:
        """A condition, which may hold a query; now and then one that is correlated by more than an equality."""
        plain = self._predicate(columns)
        column, kind = self._dice.choice(columns), self._dice.randrange(14)
        inner = self.select(there, depth - 1) if depth else "SELECT c AS x, a AS y FROM u"
        forms = {
            0: "{c} IN (SELECT inside.x FROM ({q}) inside)",
            1: "{c} NOT IN (SELECT inside.y FROM ({q}) inside)",
            2: "EXISTS (SELECT 1 FROM ({q}) inside WHERE inside.x = {c})",
            3: "({p} OR NOT EXISTS (SELECT 1 FROM u inside WHERE inside.a = {c}))",
            4: "{c} >= (SELECT min(inside.x) FROM ({q}) inside)",
            5: "{c} = (SELECT count(*) FROM e inside WHERE inside.a = {c})",
            6: "NOT ({p})",
            7: "EXISTS (SELECT 1 FROM u inside WHERE inside.a > {c})" if self._one_in(4) else "{p}",
        }
        return forms.get(kind, "{p}").format(c=column, q=inner, p=plain)
