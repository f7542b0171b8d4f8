"""The cache process of an executor, its loaders, and how tasks reach it."""
