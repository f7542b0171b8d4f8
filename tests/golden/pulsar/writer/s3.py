"""An S3 endpoint on the loopback address for the writer: moto, and only its S3 part.

Usage: s3.py PORT. `moto_server` itself guesses the service from the Authorization
header, which fails for some older signatures that the offloader's client sends.
"""

import os
import sys

os.environ["S3_UPLOAD_PART_MIN_SIZE"] = (
    "1"  # S3 wants 5 MiB; blocks of a few kB are wanted here
)

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import run_simple

run_simple("127.0.0.1", int(sys.argv[1]), create_backend_app("s3"), threaded=True)
