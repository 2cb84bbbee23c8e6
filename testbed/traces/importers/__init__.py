"""Formats that a trace can be read from. Adding one: a module here, and a line in ``IMPORTERS``."""

from testbed.traces.importers import (
    byte_logs,
    fcc_mba,
    g_nettrack,
    lumos5g_csv,
    mahimahi,
    project_csv,
    puffer,
    sabre,
    starlink,
    two_columns,
)
from testbed.traces.importers.base import Importer

IMPORTERS: dict[str, Importer] = {
    "csv": project_csv.IMPORTER,
    "mahimahi": mahimahi.IMPORTER,
    "pensieve": two_columns.PENSIEVE,
    "puffer-cooked": two_columns.PUFFER_COOKED,
    "ms-mbps": two_columns.MS_MBPS,
    "ms-kbps": two_columns.MS_KBPS,
    "s-kbps": two_columns.S_KBPS,
    "puffer": puffer.IMPORTER,
    "sabre": sabre.IMPORTER,
    "norway-hsdpa": byte_logs.NORWAY,
    "ghent-lte": byte_logs.GHENT,
    "g-nettrack": g_nettrack.IMPORTER,
    "lumos5g": two_columns.LUMOS5G,
    "lumos5g-csv": lumos5g_csv.IMPORTER,
    "fcc-mba": fcc_mba.IMPORTER,
    "starlink-autobahn": starlink.AUTOBAHN,
    "starlink-iperf": starlink.IPERF,
}
