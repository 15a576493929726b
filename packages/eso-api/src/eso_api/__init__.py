"""What users write: every kind of the External Secrets API, as types and as CRDs.

    kinds.py                 all of them, with those of installed providers
    externalsecret.py …      one kind for each file; stores/, generators/ and v2/ hold the families
    shapes.py schema.py      from types to OpenAPI schemas
    crd.py manifests.py      from schemas to CRDs to YAML
    validation/              the rules of the CRDs once more, for controllers and the CLI
    values.py durations.py references.py   secret values, Go durations, selectors

Pure: it reads no cluster and no clock, and sees nothing of kuberun but its metadata types.
"""

from eso_api.values import SecretBytes

__all__ = ["SecretBytes"]
