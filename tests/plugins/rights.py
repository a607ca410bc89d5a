"""An auth manager with rights per DAG, as big installations have one: who may look at which DAGs, and who may edit them.

It is put beside Airflow's configuration, from where an API server imports it.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

RIVER = ("river.raw", "river.one", "river.two", "river.both")
ALL = ("shop", "vault", "bakery", "mall", "garden", "forge", "swamp", "gallery", *RIVER)
LOOKS = {"ann": ALL, "vera": ("shop", "bakery", "river.both", "river.one")}
EDITS = {"ann": ALL}


class RightsPerDag(SimpleAuthManager):
    """Ann may do all, Vera may look at the shop and the bakery, and Nemo may sign in."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        allowed = (LOOKS if method == "GET" else EDITS).get(user.username, ())
        return details is not None and details.id in allowed
