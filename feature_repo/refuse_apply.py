"""Stops ``feast apply`` in this folder: it is the one file that .feastignore leaves to Feast, and importing it raises.

``feast apply`` deletes from the registry what it does not find in the folder, and the objects are made by code.
"""

raise RuntimeError(
    "`feast apply` would delete the registered views; they are applied from code: python -m feature_repo.materialize, "
    "or feature_repo.definitions.apply(online, views)"
)
