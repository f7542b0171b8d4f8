"""Reads topics of Apache Pulsar from what its brokers offloaded, without a broker."""

from sparkcache_pulsar.connector import PulsarConnector
from sparkcache_pulsar.manifest import read_cursors

__all__ = ["PulsarConnector", "read_cursors"]
