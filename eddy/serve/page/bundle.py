"""Bundles the scripts of the page, so that a browser makes one request for all of them.

Each module becomes a function that is called once, before the modules that import it, and returns its exports. A module
imports others by lines `import { a, b as c } from "./name.js";` at its beginning, and exports its declarations. Modules
that a script imports while it runs, by `import(…)`, remain files of their own.
"""

import re
from pathlib import Path

__all__ = ["bundle"]

_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def bundle(entry: Path) -> bytes:
    """Return one script of a module and of all modules that it imports from its folder."""
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        if name in modules:
            return
        written = (entry.parent / f"{name}.js").read_text("utf-8")
        for _, imported in _IMPORT.findall(written):
            add(imported)
        modules[name] = _function(name, written)

    add(entry.stem)
    return "".join(modules.values()).encode()


def _function(name: str, written: str) -> str:
    exports = ", ".join(_EXPORT.findall(written))
    code = _EXPORT.sub("", _IMPORT.sub(_constant, written))
    return f"const ${name} = (() => {{\n{code}return {{ {exports} }};\n}})();\n"


def _constant(found: re.Match[str]) -> str:
    return f"const {{ {found[1].replace(' as ', ': ')} }} = ${found[2]};\n"
