"""Reads topics of Apache Pulsar from what its brokers offloaded, without a broker."""

from sparkcache_pulsar.connector import PulsarConnector

__all__ = ["PulsarConnector"]
