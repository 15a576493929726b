{{/* The CRDs: those of the core, and those of providers, which come with the first release that needs them. */}}

{{/* The owner of a CRD in the cluster: empty if there is no such CRD, `this release`, or words for people: list ROOT NAME. */}}
{{- define "eso.crdOwner" -}}
{{- $root := index . 0 }}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) }}
{{- $annotations := default dict .metadata.annotations }}
{{- $name := get $annotations "meta.helm.sh/release-name" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" }}
{{- if not $name -}}
no Helm release
{{- else if and (eq $name $root.Release.Name) (eq $namespace $root.Release.Namespace) -}}
this release
{{- else -}}
Helm release {{ $namespace }}/{{ $name }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether this release has the CRD of a provider: list ROOT NAME OWNERS, with the owners that may lose it to this release.
     Two releases never have the same one, which Helm would refuse; and a release goes on to upgrade each CRD that it owns,
     also after its provider was disabled. */}}
{{- define "eso.hasProviderCrd" -}}
{{- if has (include "eso.crdOwner" (list (index . 0) (index . 1))) (append (index . 2) "this release") }}true{{ end }}
{{- end }}

{{/* A CRD as an object of this release, which neither Helm nor Argo CD deletes: list ROOT NAME. Argo CD renders without a
     cluster, so a CRD whose provider was disabled is not among what it renders. */}}
{{- define "eso.crd" -}}
{{- $root := index . 0 }}
{{- $crd := $root.Files.Get (printf "files/crds/%s.yaml" (index . 1)) | fromYaml }}
{{- $annotations := deepCopy (default dict (dig "annotations" dict (default dict $root.Values.crds))) }}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- if not (hasKey $annotations "argocd.argoproj.io/sync-options") }}
{{- $_ = set $annotations "argocd.argoproj.io/sync-options" "Prune=false" }}
{{- end }}
{{- $_ = set $crd.metadata "annotations" $annotations }}
{{- range $key, $value := fromYaml (include "eso.commonLabels" $root) }}
{{- $_ = set $crd.metadata.labels $key $value }}
{{- end }}
---
{{ toYaml $crd }}
{{- end }}

{{/* A line for each owner of CRDs of these providers that keeps them: list ROOT NAMES OWNERS, as above. */}}
{{- define "eso.crdNotes" -}}
{{- $root := index . 0 }}
{{- $owners := append (index . 2) "this release" }}
{{- $table := fromYaml ($root.Files.Get "files/providercrds.yaml") }}
{{- range $provider := index . 1 }}
{{- $others := dict }}
{{- range $name := dig $provider "crds" list $table }}
{{- $owner := include "eso.crdOwner" (list $root $name) }}
{{- if not (has $owner $owners) }}
{{- $_ := set $others $owner true }}
{{- end }}
{{- end }}
{{- range $owner, $_ := $others }}
CRDs of provider {{ $provider }} belong to {{ $owner }} and stay as they are: upgrade them there before this release.
{{- end }}
{{- end }}
{{- end }}
