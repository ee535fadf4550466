"""Errors planted in functions of the worker: comparisons turned round, signs, numbers off by one, dropped branches.

A mutant is a function's name and the number of a place in it. The code of the function is replaced in the process that
plants it, so that the sources stay as they are.
"""

import ast
import contextlib
import copy
import importlib
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

__all__ = ["Mutant", "functions_of", "mutants_of", "ordered", "planted"]


class Mutant(NamedTuple):
    """The error number `number` in a function of a module."""

    module: str
    function: str
    number: int

    def __str__(self) -> str:
        return f"{self.module}.{self.function}#{self.number}: {described(self)}"


_TURNED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def functions_of(module: str) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines, by name."""
    found = importlib.import_module(module)
    for name, item in vars(found).items():
        if isinstance(item, FunctionType) and item.__module__ == module and item.__name__ == name:
            yield name, item
        elif inspect.isclass(item) and item.__module__ == module:
            for method, function in vars(item).items():
                function = getattr(function, "fget", None) or getattr(function, "__func__", function)
                if isinstance(function, FunctionType) and function.__module__ == module:
                    yield f"{name}.{method}", function


def mutants_of(module: str) -> Iterator[Mutant]:
    """All errors that may be planted in a module."""
    for name, function in functions_of(module):
        tree = _tree(function)
        for number in range(0 if tree is None else len(list(_places(tree)))):
            mutant = Mutant(module, name, number)
            if mutated(mutant) is not None:
                yield mutant


def _tree(function: FunctionType) -> ast.FunctionDef | None:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (found,) = ast.parse(source).body
    except (OSError, SyntaxError):
        return None
    return found if isinstance(found, ast.FunctionDef) else None


def _places(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may be changed, in order."""
    for node in ast.walk(tree):
        if (
            (isinstance(node, ast.Compare) and len(node.ops) == 1)
            or (isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _TURNED)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not))
            or (isinstance(node, ast.Constant) and type(node.value) is int)
            or isinstance(node, ast.If | ast.IfExp)
        ):
            yield node


def _changed(node: Any) -> Any:
    """The node with an error."""
    if isinstance(node, ast.Compare):
        node.ops = [_TURNED[type(node.ops[0])]()]
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        node.op = _TURNED[type(node.op)]()
    elif isinstance(node, ast.UnaryOp):
        return node.operand
    elif isinstance(node, ast.Constant):
        return ast.copy_location(ast.Constant(node.value + 1), node)
    else:
        node.test = ast.copy_location(ast.Constant(False), node.test)
    return node


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, made: ast.AST) -> None:
        self._target, self._made = target, made

    def visit(self, node: ast.AST) -> Any:
        return self._made if node is self._target else super().visit(node)


def described(mutant: Mutant) -> str:
    """The changed part, before and after."""
    tree = _tree(_function(mutant))
    assert tree is not None
    node = list(_places(tree))[mutant.number]
    before = ast.unparse(node).split("\n")[0]
    return f"line {node.lineno}: {before} → {ast.unparse(_changed(copy.deepcopy(node))).splitlines()[0]}"


def _function(mutant: Mutant) -> FunctionType:
    return dict(functions_of(mutant.module))[mutant.function]


def mutated(mutant: Mutant) -> CodeType | None:
    """The code with the error; None where a function cannot be made anew, since it refers to its class or others."""
    function = _function(mutant)
    tree = _tree(function)
    assert tree is not None
    tree.decorator_list = []
    places = list(_places(tree))
    node = places[mutant.number]
    tree = ast.fix_missing_locations(_Replace(node, _changed(node)).visit(tree))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    module = ast.Module([tree], [])
    try:
        compiled = compile(module, function.__code__.co_filename, "exec")
    except (SyntaxError, ValueError):
        return None
    codes = [found for found in compiled.co_consts if isinstance(found, CodeType) and found.co_name == tree.name]
    code = codes[0] if codes else None
    return code if code is not None and code.co_freevars == function.__code__.co_freevars else None


@contextlib.contextmanager
def planted(orders: Path) -> Iterator[None]:
    """While the context lasts, the mutants that a file names are planted in this process."""
    mutants = [Mutant(*found) for found in json.loads(orders.read_text())] if orders.exists() else []
    former = [(_function(mutant), _function(mutant).__code__) for mutant in mutants]
    try:
        for mutant in mutants:
            code = mutated(mutant)
            assert code is not None, mutant
            _function(mutant).__code__ = code
        yield
    finally:
        for function, code in former:
            function.__code__ = code


@contextlib.contextmanager
def ordered(orders: Path, mutants: Iterable[Mutant]) -> Iterator[None]:
    """While the context lasts, the mutants are planted in this process and in the Python workers of Spark."""
    orders.write_text(json.dumps(list(mutants)))
    try:
        with planted(orders):
            yield
    finally:
        orders.unlink()
