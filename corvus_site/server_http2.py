"""placeholder"""

from corvus_site.server_connection import Connection


class Http2Connection(Connection):
    """x"""
