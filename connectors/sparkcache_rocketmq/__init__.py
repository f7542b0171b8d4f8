"""Read Apache RocketMQ topics from the brokers' tiered storage, without a broker."""

from sparkcache_rocketmq.connector import RocketMQConnector

__all__ = ["RocketMQConnector"]
