"""eddy in an app of Faust (faust-streaming): `eddy.faust.host(app, topology)`; the only package that imports Faust.

hosting.py          `host`: a topology becomes a part of an app
hosted.py           such a topology: its settings, its log, its worker
service.py          the service that runs eddy's worker beside Faust's event loop
app_settings.py     from an app's settings to a log
serdes.py           serdes for models and codecs
app_tables.py       tables of an app as tables of a topology
monitor_pages.py    the worker in Faust's web server; in its command line (commands.py, command_group.py) and sensors.py
"""

try:
    import faust  # noqa: F401
except ImportError as error:
    from eddy.errors import ConfigurationError

    raise ConfigurationError(
        "faust: faust-streaming is not installed; it is needed to host a topology in a Faust app. "
        "Install it: pip install 'eddy-streams[faust]'"
    ) from error

from eddy.faust.app_tables import table
from eddy.faust.hosted import HostedTopology
from eddy.faust.hosting import host
from eddy.faust.serdes import codec, record

__all__ = ["HostedTopology", "codec", "host", "record", "table"]
