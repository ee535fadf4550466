"""eddy in an app of Faust (faust-streaming): `eddy.faust.host(app, topology)`; needs the extra `faust`."""

from eddy.connectors.faust import HostedTopology, codec, host, record, table

__all__ = ["HostedTopology", "codec", "host", "record", "table"]
