"""The API without HTTP: verbs on kinds, and the controllers a cluster needs to keep its promises.

Cluster (verbs)  ->  reads | writes | deletion | watches  ->  catalog, storage
background       ->  gc | namespaces | definitions | housekeeping: react to committed changes through the same verbs
"""

from localkube.cluster.catalog import Catalog
from localkube.cluster.cluster import Cluster, Handler
from localkube.cluster.patching import PatchType
from localkube.cluster.tokens import Tokens
from localkube.cluster.watches import Watch

__all__ = ["Catalog", "Cluster", "Handler", "PatchType", "Tokens", "Watch"]
