"""Code of the driver: the session, statistics, the tab, and RPC to the nodes."""
