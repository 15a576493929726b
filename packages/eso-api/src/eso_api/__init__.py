"""The External Secrets API: every kind as Python types and as CRDs.

kinds.py                 all kinds, including those of installed providers
externalsecret.py …      a kind with its cluster-scoped form; v2/ has stores and generators in processes of their own
stores/ generators/      what v1 manifests say of each provider, one file for each provider of this project
shapes.py crd.py         the types of fields; from types to OpenAPI schemas, to CRDs, to YAML
validation.py            the rules of the CRDs as functions, for controllers and the command line
values.py references.py common.py   secret values; references and selectors; fields that several kinds share

Pure: it reads no cluster and no clock, and imports only the metadata types of kubebase.
"""

from eso_api.values import SecretBytes

__all__ = ["SecretBytes"]
