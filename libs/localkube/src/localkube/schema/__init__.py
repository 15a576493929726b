"""The schemas of custom and built-in kinds, and the checks of objects against them.

| part | purpose |
|---|---|
| structural | `Schema` of a custom resource: pruning, defaulting, values, combinators, lists, rules |
| cel | the language of x-kubernetes-validations |
| crd | CustomResourceDefinitions; crd_spec, crd_schema, crd_rules and crd_defaults are their checks |
| builtin | `ServedKind` of every built-in kind |
| openapi | the documents that describe all of them to clients |
| causes, names, objectmeta, formats, decoding | the error texts of kube-apiserver |
"""
