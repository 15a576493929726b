"""One cluster-scoped object, one child in every matching namespace: ClusterExternalSecret and its like.

description            a parent and its child as a value, so that one reconciler serves every such pair
clusterexternalsecret  the pair ClusterExternalSecret, ExternalSecret
clusterpushsecret      the pair ClusterPushSecret, PushSecret
namespaces             which namespaces are meant, and what has to happen where                   pure
child                  what a child should be, and whether a live one is that                     pure
outcome                from what was reached to status, event and requeue                         pure
triggers               when a parent is looked at
parents                the parents as they are known, our own writes included
writing                creates, rewrites and deletes children
leftovers              takes finalizers of the existing operator off namespaces
reconciler             the story: gather, hold, spread, report
assembly               puts a controller together for `wiring.py`
"""
