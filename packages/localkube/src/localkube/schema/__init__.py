"""What objects look like: the schemas of custom and built-in kinds, and everything that is checked against them.

| part | what it does |
|---|---|
| structural | `Schema` of a custom resource: pruning, defaulting, values, combinators, lists, rules |
| cel | the language of x-kubernetes-validations |
| crd | CustomResourceDefinitions; crd_spec, crd_schema, crd_rules and crd_defaults are their checks |
| builtin | `ServedKind` of every kind the server has of its own |
| openapi | the documents that describe all of them to clients |
| causes, names, objectmeta, formats, decoding | the words of kube-apiserver for what is wrong |
"""
