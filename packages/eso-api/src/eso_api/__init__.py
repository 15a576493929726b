"""The External Secrets API: every kind as Python types and as CRDs.

kinds.py                 all kinds, including those of installed providers
externalsecret.py …      one kind per file; stores/, generators/ and v2/ hold the families
shapes.py schema.py      from types to OpenAPI schemas
crd.py manifests.py      from schemas to CRDs to YAML
validation/              the rules of the CRDs as functions, for controllers and the CLI
values.py durations.py references.py   secret values, Go durations, selectors

Pure: it reads no cluster and no clock, and imports only the metadata types of kubebase.
"""

from eso_api.values import SecretBytes

__all__ = ["SecretBytes"]
