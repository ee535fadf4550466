"""Structs of a notebook, of `__main__` or of a function, pickled by value.

cloudpickle creates such a class empty and sets its attributes afterwards. But `msgspec` derives the fields from the
annotations when a class is created, so the fields would be lost. Here a class is created in one step, with its bases,
own annotations, defaults, methods and options. Names in textual annotations are resolved in a separate module, since a
worker does not have the module in which the class was defined.

In a worker a class is created only once, so that equal values are equal even if different functions made them.
"""

import ast
import contextlib
import inspect
import sys
import types
import typing
import uuid
import weakref
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import msgspec
from pyspark.cloudpickle import cloudpickle

__all__ = ["dumps"]

_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_MADE_ANEW = frozenset({"__slots__", "__dict__", "__weakref__", "__parameters__", "__annotations__", "__module__"})
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_CACHE = "__msgspec_cache__"
"""The attribute in which msgspec caches its view of an enum, a dataclass or a typed dict. It is not pickled."""
_by_reference: Any = cloudpickle._should_pickle_by_reference
_identities: "weakref.WeakKeyDictionary[type, str]" = weakref.WeakKeyDictionary()
_made: dict[str, type] = {}


class _WithList(msgspec.Struct):
    items: list[int] = []


_Factory: Any = type(_WithList.__struct_defaults__[0])


def dumps(item: Any) -> bytes:
    """Pickle an object with cloudpickle, together with structs that no module defines."""
    file = BytesIO()
    pickler: Any = _Pickler
    pickler(file).dump(item)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Pickle structs that no module defines by value, and all other objects as cloudpickle does."""
        if isinstance(obj, msgspec.StructMeta) and not _by_reference(obj):
            return _reduced(obj)
        if type(obj) is msgspec.Meta:
            limits = {name: getattr(obj, name) for name in dir(obj) if not name.startswith("_")}
            return _meta, ({name: limit for name, limit in limits.items() if limit is not None},)
        reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call]
        if isinstance(obj, type) and _CACHE in vars(obj) and isinstance(reduced, tuple):
            reduced[2][0].pop(_CACHE, None)
        return reduced


def _reduced(of: msgspec.StructMeta) -> tuple[Any, ...]:
    struct: Any = of
    identity = _identities.setdefault(of, uuid.uuid4().hex)
    annotations = inspect.get_annotations(struct)
    own = [name for name in annotations if name in struct.__struct_fields__]
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False))
    encoded = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
    kept = {
        name: value
        for name, value in vars(struct).items()
        if name not in _MADE_ANEW and name not in own and not isinstance(value, _DESCRIPTORS)
    }
    fields = {name: (encoded[name], *_default(defaults.get(name, msgspec.NODEFAULT))) for name in own}
    options = {name: getattr(struct.__struct_config__, name) for name in _OPTIONS}
    options["kw_only"] = any(name not in struct.__match_args__ for name in own)
    where = {"__module__": struct.__module__, "__qualname__": struct.__qualname__, "__annotations__": annotations}
    arguments = (identity, type(of), of.__name__, of.__bases__, kept | where, fields, options)
    named = dict(_named(struct.__module__, annotations))
    return _make, arguments, named, None, None, _name


def _meta(limits: dict[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**limits)


def _default(default: Any) -> tuple[Any, Any]:
    """Return a field's default and its default factory, of which at least one is missing."""
    return (None, default.factory) if isinstance(default, _Factory) else (default, None)


def _make(
    identity: str,
    meta: type[msgspec.StructMeta],
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    fields: dict[str, tuple[str, Any, Any]],
    options: dict[str, Any],
) -> type:
    if identity not in _made:
        for field, (encoded, default, factory) in fields.items():
            other = None if encoded == field else encoded
            if factory is not None:
                namespace[field] = msgspec.field(default_factory=factory, name=other)
            elif default is not msgspec.NODEFAULT or other:
                namespace[field] = msgspec.field(default=default, name=other)
        _made[identity] = made = meta(name, bases, namespace, **options)
        _identities[made] = identity
    return _made[identity]


def _name(made: Any, named: dict[str, Any]) -> None:
    """Put the names that a class's textual annotations use into a module of its own, where they are resolved."""
    if named:
        made.__module__ = f"{__name__}.{_identities[made]}"
        module = sys.modules.setdefault(made.__module__, types.ModuleType(made.__module__))
        vars(module).update(named)


def _named(module: str, annotations: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names in textual annotations, or in textual parts of annotations, with their values."""
    known = vars(sys.modules[module]) if module in sys.modules else {}
    for text in _texts(list(annotations.values())):
        for part in _parts(text):
            if isinstance(part, ast.Name) and part.id in known:
                yield part.id, known[part.id]
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield from _named(module, {"": part.value})


def _parts(text: str) -> Iterator[ast.AST]:
    """Yield the nodes of an annotation's syntax tree; none for a text that is not a type, as in a `Literal`."""
    with contextlib.suppress(SyntaxError):
        yield from ast.walk(ast.parse(text, mode="eval"))


def _texts(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, typing.ForwardRef):
            yield part.__forward_arg__
        else:
            yield from _texts(typing.get_args(part))
