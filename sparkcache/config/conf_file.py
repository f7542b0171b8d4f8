"""The text of a conf file with all settings."""

from __future__ import annotations

import textwrap

from sparkcache.config.cache_config import (
    CONF_FILE_VARIABLE,
    CONF_PREFIX,
    CacheConfig,
    scan_option_names,
)
from sparkcache.config.setting import settings_of


def conf_file() -> str:
    """Return the text of a conf file that documents every setting and its default."""
    parts = [
        "# All settings of sparkcache with their defaults. To use this file, set "
        f"{CONF_FILE_VARIABLE}\n# to its path; or set the same keys in Spark's conf. "
        "Settings marked (scan) are also\n# options of a single scan. The process that "
        "plans a query sees Spark's conf only as\n# sparkcache.install has shipped it; "
        "this affects endpoint, allowedEndpoints,\n# region, pathStyle, "
        "storageAttempts, storageTimeout, requestTimeout, anonymous,\n"
        "# requesterPays and partitionBytes.\n"
    ]
    for setting in settings_of(CacheConfig):
        scope = " (scan)" if setting.option in scan_option_names() else ""
        doc = textwrap.wrap(setting.doc + scope, width=85)
        key, default = CONF_PREFIX + setting.option, setting.show(setting.default)
        parts.append("".join(f"# {line}\n" for line in doc))
        parts[-1] += f"#{key} {default}".rstrip() + "\n"
    return "\n".join(parts)
