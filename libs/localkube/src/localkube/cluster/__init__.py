"""The API without HTTP: verbs on kinds, and the controllers a cluster needs to keep its promises.

Cluster (verbs)  ->  writes | deletion | watches (lists too)  ->  catalog, storage
background       ->  deletion (garbage collection) | namespaces | definitions: react to committed changes
"""

from localkube.cluster.catalog import Catalog
from localkube.cluster.cluster import Cluster, Handler
from localkube.cluster.tokens import Tokens
from localkube.cluster.watches import Watch

__all__ = ["Catalog", "Cluster", "Handler", "Tokens", "Watch"]
