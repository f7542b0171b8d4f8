"""Reads topics of Apache RocketMQ from what its brokers tiered, without a broker."""
