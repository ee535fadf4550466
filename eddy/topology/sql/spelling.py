"""SQL's names for the parser's node types, and the arguments of a node in SQL's order."""

from sqlglot import exp
from sqlglot.dialects import Postgres

from eddy.topology.sql.unsupported_syntax import parts_of, peek, text_of, without_meaning

__all__ = ["AGGREGATES", "ARITHMETIC", "COMPARISONS", "arguments_of", "instead_of", "name_of"]

COMPARISONS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
ARITHMETIC: dict[type, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
AGGREGATES: dict[type, str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}

_FUNCTIONS: dict[type, tuple[str, tuple[str, ...]]] = {
    exp.Length: ("length", ("this",)),
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Initcap: ("initcap", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.Repeat: ("repeat", ("this", "times")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("position", ("this", "substr")),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Trim: ("trim", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.Pad: ("lpad", ("this", "expression", "fill_pattern")),
    exp.Abs: ("abs", ("this",)),
    exp.Sign: ("sign", ("this",)),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Trunc: ("trunc", ("this", "decimals")),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.Ln: ("ln", ("this",)),
    exp.Exp: ("exp", ("this",)),
    exp.Pow: ("power", ("this", "expression")),
}
_NAMES: dict[type, str] = {
    exp.GroupConcat: "string_agg",
    exp.JSONArrayAgg: "json_agg",
    exp.JSONObjectAgg: "json_object_agg",
    exp.ApproxDistinct: "approx_count_distinct",
}
"""SQL's names of aggregates for which the parser has other names."""
_LISTS = {"array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "list"}
_DELIMITERS = Postgres.INITCAP_DEFAULT_DELIMITER_CHARS
"""The second argument that the parser adds to initcap."""
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def name_of(node: exp.Expr) -> str:
    """Return SQL's name of the function that a node calls."""
    if isinstance(node, exp.Anonymous):
        return text_of(node).lower()
    if isinstance(node, exp.Trim):
        return _TRIMS.get(node.args.get("position") or "", "trim")
    if isinstance(node, exp.Pad):
        return "lpad" if node.args.get("is_left") else "rpad"
    if type(node) in _FUNCTIONS:
        return _FUNCTIONS[type(node)][0]
    if type(node) in _NAMES:
        return _NAMES[type(node)]
    return node.sql_name().lower() if isinstance(node, exp.Func) else type(node).__name__.lower()


def arguments_of(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the arguments in SQL's order; None if the node is not a function."""
    if isinstance(node, exp.Anonymous):
        return list(parts_of(node))
    if type(node) not in _FUNCTIONS:
        return None
    _, names = _FUNCTIONS[type(node)]
    if isinstance(node, exp.Initcap) and peek(peek(node, "expression"), "this") == _DELIMITERS:
        without_meaning(node, "expression")
        without_meaning(node.args["expression"], "this", "is_string")
    found = [node.args.get(name) for name in names]
    while found and found[-1] is None:
        found.pop()
    return found if None not in found else None  # type: ignore[return-value]


def instead_of(name: str) -> str:
    """Return a text to write instead of an unsupported aggregate or function; empty if there is none like it."""
    if name in _LISTS:
        return (
            "a column has no lists. count(DISTINCT x) counts the values, and a topology lists them, of windows, too: "
            "groups.collect('lists', max=100)"
        )
    return "count(DISTINCT x) is exact" if name == "approx_count_distinct" else ""
