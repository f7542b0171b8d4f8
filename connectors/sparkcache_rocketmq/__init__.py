"""Reads topics of Apache RocketMQ from what its brokers tiered, without a broker."""

from sparkcache_rocketmq.connector import RocketMQConnector

__all__ = ["RocketMQConnector"]
