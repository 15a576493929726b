{{/* The settings of a provider, as JSON: its own over providerDefaults, then the chart's, then `global`: list ROOT NAME. */}}
{{- define "eso.provider" -}}
{{- $root := index . 0 }}
{{- $values := $root.Values }}
{{- $own := default dict (get (default dict $values.providers) (index . 1)) }}
{{- $settings := fromJson (include "eso.over" (list (default dict $values.providerDefaults) $own)) }}
{{- range $key := list "imagePullSecrets" "revisionHistoryLimit" "strategy" "podSecurityContext" "securityContext" "extraEnv" "extraVolumes" "extraVolumeMounts" "nodeSelector" "tolerations" "affinity" "hostAliases" "topologySpreadConstraints" "priorityClassName" "schedulerName" "runtimeClassName" "dnsPolicy" "dnsConfig" "service" }}
{{- if and (not (get $settings $key)) (get $values $key) }}
{{- $_ := set $settings $key (get $values $key) }}
{{- end }}
{{- end }}
{{- range $key := list "podLabels" "podAnnotations" "deploymentAnnotations" }}
{{- $_ := set $settings $key (fromJson (include "eso.over" (list (default dict (get $values $key)) (default dict (get $settings $key))))) }}
{{- end }}
{{- $image := default dict $settings.image }}
{{- if not $image.pullPolicy }}
{{- $_ := set $image "pullPolicy" (dig "pullPolicy" "IfNotPresent" (default dict $values.image)) }}
{{- end }}
{{- $_ := set $settings "image" $image }}
{{- /* The operator in Go calls clouds itself, with its own account; here the provider does. */}}
{{- $account := default dict $settings.serviceAccount }}
{{- if and (not $account.annotations) (dig "inheritIdentity" true $settings) }}
{{- $identity := dict }}
{{- range $key, $value := $values.serviceAccount.annotations }}
{{- if regexMatch "^(eks\\.amazonaws\\.com|iam\\.gke\\.io|azure\\.workload\\.identity)/" $key }}
{{- $_ := set $identity $key $value }}
{{- end }}
{{- end }}
{{- $_ := set $account "annotations" $identity }}
{{- end }}
{{- $_ = set $settings "serviceAccount" $account }}
{{- /* Azure gives a token only to pods that ask for it by this label. */}}
{{- range $key, $_ := $account.annotations }}
{{- if hasPrefix "azure.workload.identity/" $key }}
{{- $_ := set $settings "podLabels" (merge $settings.podLabels (dict "azure.workload.identity/use" "true")) }}
{{- end }}
{{- end }}
{{- include "eso.orGlobal" (list $root $settings) }}
{{- end }}

{{/* The names of the providers that run on their own, as JSON. */}}
{{- define "eso.alone" -}}
{{- $shared := fromJson (include "eso.shared" .) }}
{{- $alone := list }}
{{- range $name, $settings := .Values.providers }}
{{- if and (ne $name "shared") (dig "enabled" false (default dict $settings)) (not (has $name $shared.names)) }}
{{- $alone = append $alone $name }}
{{- end }}
{{- end }}
{{- toJson (dict "names" $alone) }}
{{- end }}

{{/* The names of the providers that share a Deployment, as JSON. */}}
{{- define "eso.shared" -}}
{{- $shared := dig "shared" dict (default dict .Values.providers) }}
{{- toJson (dict "names" (ternary (dig "names" list $shared) list (dig "enabled" false $shared))) }}
{{- end }}

{{/* The names of the providers whose CRDs this release installs, as JSON. */}}
{{- define "eso.crdProviders" -}}
{{- $more := default list (dig "providers" list (default dict .Values.crds)) }}
{{- toJson (dict "names" (concat (fromJson (include "eso.alone" .)).names (fromJson (include "eso.shared" .)).names $more | uniq)) }}
{{- end }}
