"""The topologies of the kill tests, as a user's file has them: `eddy run tests/kill/topologies.py:NAME`."""

from tests.simulation import programs

countdown = programs.countdown()
materials = programs.materials()
permissions = programs.permissions()
sessions = programs.sessions()
family = programs.family()
visits = programs.visits()
clicks = programs.clicks()
