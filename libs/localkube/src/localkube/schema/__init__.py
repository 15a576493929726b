"""The schemas of custom and built-in kinds, and the checks of objects against them.

| part | purpose |
|---|---|
| structural | `Schema` of a custom resource, put together from pruning, values and rules |
| cel | the language of x-kubernetes-validations |
| crd | CustomResourceDefinitions; crd_spec has the checks of their schemas and rules |
| builtin | `ServedKind` of every built-in kind |
| openapi | the documents that describe all of them to clients |
| causes, metadata, formats, decoding | the error texts of kube-apiserver |
"""
