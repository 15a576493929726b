"""`eso preflight`: is a cluster of the operator in Go ready for this operator?

    gather (cluster, Helm records, manifests, values) -> Snapshot -> CHECKS -> Report -> text or JSON

Each check is a pure function over the frozen `Snapshot`. Nothing is written, and no Secret is read except the records
of the Helm releases that own parts of External Secrets.
"""
