"""Paths that users have imported stay importable for a while, with a warning."""

import importlib

import pytest

import eddy.serve


@pytest.mark.parametrize(
    ("path", "name"), [("eddy.serve.views.http", "tables_app"), ("eddy.serve.views.server", "served")]
)
def test_an_old_path_has_the_name_and_says_where_it_is(path: str, name: str) -> None:
    module = importlib.import_module(path)
    with pytest.warns(DeprecationWarning, match=f"from eddy.serve import {name}") as warned:
        assert getattr(module, name) is getattr(eddy.serve, name)
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        module.other  # noqa: B018


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        eddy.serve.other  # noqa: B018
