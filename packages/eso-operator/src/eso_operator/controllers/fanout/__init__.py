"""One cluster-scoped object, one child in every matching namespace: ClusterExternalSecret and ClusterPushSecret.

kinds                  a parent and its child as a value, so that one reconciler serves every such pair
clusterexternalsecret  the pair ClusterExternalSecret, ExternalSecret
clusterpushsecret      the pair ClusterPushSecret, PushSecret
controller             watches and reconcile
snapshot               the selected namespaces, and the work in each of them                   pure
sync                   the desired child, compared with the live one, and its write
status                 maps results to status, event and requeue                               pure
"""
