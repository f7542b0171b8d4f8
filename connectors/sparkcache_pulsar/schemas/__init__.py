"""Values as what the producers' schema says they are.

    options      -> Spec         what was given, in one form          given.py, spec.py
    definition   -> tree         Avro's notation, for AVRO and JSON   notation.py
    payloads     -> Decoded      a column, and what did not decode    decoders.py

A `Spec` is what identifies decoding: it holds the schema itself, so executors need
nothing but the string that it travels in.
"""

from sparkcache_pulsar.schemas.options import OPTION_NAMES, decoding
from sparkcache_pulsar.schemas.spec import Decoding, Mode, Spec

__all__ = ["OPTION_NAMES", "Decoding", "Mode", "Spec", "decoding"]
