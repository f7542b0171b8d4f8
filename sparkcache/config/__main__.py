"""Prints `conf/sparkcache.conf`."""

from sparkcache.config.conf_file import conf_file

if __name__ == "__main__":
    print(conf_file(), end="")
