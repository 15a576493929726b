"""One cluster-scoped object, one child in every matching namespace: ClusterExternalSecret and ClusterPushSecret.

kinds       the two pairs of parent and child as values, so that one reconciler serves both
controller  watches and reconcile
snapshot    the selected namespaces, and the work in each of them                   pure
sync        the desired child, compared with the live one, and its write
status      maps results to status, event and requeue                               pure
"""
