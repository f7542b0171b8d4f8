"""Decode values with the producers' schema.

    options      -> Spec        the schema in one form               options.py, spec.py
    definition   -> tree        Avro's notation, for AVRO and JSON   notation.py
    payloads     -> Decoded     a column and the faults              decoders.py

A `Spec` identifies how values are decoded. It contains the schema itself, so executors
need only the string to which it is serialized.
"""

from sparkcache_pulsar.schemas.options import OPTION_NAMES, decoding
from sparkcache_pulsar.schemas.spec import Mode, Spec, ValueDecoding

__all__ = ["OPTION_NAMES", "Mode", "Spec", "ValueDecoding", "decoding"]
