"""One cluster-scoped object, one child in every matching namespace: ClusterExternalSecret and ClusterPushSecret.

description            a parent and its child as a value, so that one reconciler serves every such pair
clusterexternalsecret  the pair ClusterExternalSecret, ExternalSecret
clusterpushsecret      the pair ClusterPushSecret, PushSecret
namespaces             the selected namespaces, and the work in each of them                   pure
child                  the desired child, compared with the live one                     pure
outcome                maps results to status, event and requeue                         pure
triggers               when a parent is reconciled
parents                the cached parents, our own writes included
writing                creates, rewrites and deletes children
leftovers              removes finalizers of the existing operator from namespaces
reconciler             the story: gather, hold, spread, report
"""
