{{/* What the pods of the operator and of providers have in common. */}}

{{/* The second map over the first, as JSON: list BASE OVER. Unlike sprig's merge, `false` and 0 count. */}}
{{- define "eso.over" -}}
{{- $merged := deepCopy (index . 0) }}
{{- range $key, $value := index . 1 }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $merged $key)) }}
{{- $_ := set $merged $key (fromJson (include "eso.over" (list (get $merged $key) $value))) }}
{{- else }}
{{- $_ := set $merged $key $value }}
{{- end }}
{{- end }}
{{- toJson $merged }}
{{- end }}

{{/* The settings with those of `global` where they are empty, as JSON: list ROOT SETTINGS. */}}
{{- define "eso.orGlobal" -}}
{{- $global := default dict (index . 0).Values.global }}
{{- $own := deepCopy (index . 1) }}
{{- range list "nodeSelector" "tolerations" "topologySpreadConstraints" "affinity" "hostAliases" "podLabels" "podAnnotations" "imagePullSecrets" }}
{{- if and (not (get $own .)) (get $global .) }}
{{- $_ := set $own . (get $global .) }}
{{- end }}
{{- end }}
{{- toJson $own }}
{{- end }}

{{/* A securityContext value without its switch, and without fixed users where OpenShift assigns them: list ROOT CONTEXT. */}}
{{- define "eso.securityContext" -}}
{{- $root := index . 0 }}
{{- $context := default dict (index . 1) }}
{{- if dig "enabled" true $context }}
{{- $context = omit $context "enabled" }}
{{- $adapt := dig "compatibility" "openshift" "adaptSecurityContext" "auto" (default dict $root.Values.global) }}
{{- if or (eq $adapt "force") (and (eq $adapt "auto") ($root.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}
{{- $context = omit $context "fsGroup" "runAsUser" "runAsGroup" }}
{{- end }}
{{- if $context }}
{{- toYaml $context }}
{{- end }}
{{- end }}
{{- end }}

{{/* The keys of a pod's spec besides its account, containers and volumes: dict root, settings, selector. */}}
{{- define "eso.podSpec" -}}
{{- $spec := dict }}
{{- range $key := list "imagePullSecrets" "nodeSelector" "affinity" "tolerations" "hostAliases" "dnsPolicy" "dnsConfig" "priorityClassName" "schedulerName" "runtimeClassName" }}
{{- with get $.settings $key }}
{{- $_ := set $spec $key . }}
{{- end }}
{{- end }}
{{- with include "eso.securityContext" (list .root .settings.podSecurityContext) }}
{{- $_ := set $spec "securityContext" (fromYaml .) }}
{{- end }}
{{- $spread := list }}
{{- range $constraint := .settings.topologySpreadConstraints }}
{{- if not (hasKey $constraint "labelSelector") }}
{{- $constraint = set (deepCopy $constraint) "labelSelector" (dict "matchLabels" (fromYaml $.selector)) }}
{{- end }}
{{- $spread = append $spread $constraint }}
{{- end }}
{{- if $spread }}
{{- $_ := set $spec "topologySpreadConstraints" $spread }}
{{- end }}
{{- if $spec }}
{{- toYaml $spec }}
{{- end }}
{{- end }}

{{/* Flags from a map: nothing gives --KEY, a list repeats the flag, and every other value is --KEY=VALUE. */}}
{{- define "eso.extraArgs" -}}
{{- range $key, $value := . }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%v" $key . | quote }}
{{- end }}
{{- else if or (kindIs "invalid" $value) (eq (toString $value) "") }}
- --{{ $key }}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- /* Helm reads numbers as float64, and would print a million as 1e+06. */}}
- {{ printf "--%s=%.0f" $key $value | quote }}
{{- else }}
- {{ printf "--%s=%v" $key $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* An image: list ROOT COMMAND IMAGE WHERE, with WHERE the path of the values, for the message. */}}
{{- define "eso.image" -}}
{{- $root := index . 0 }}
{{- $command := index . 1 }}
{{- $image := default dict (index . 2) }}
{{- $registry := dig "registry" "" (default dict $root.Values.image) }}
{{- $repository := $image.repository }}
{{- if not $repository }}
{{- if not $registry }}
{{- fail (printf "No image is published: build %s with deploy/Containerfile, push it, and set image.registry to the registry path that holds it (or %s.repository to its whole name)." $command (index . 3)) }}
{{- end }}
{{- $repository = printf "%s/%s" (trimSuffix "/" $registry) $command }}
{{- end }}
{{- $tag := default $root.Chart.AppVersion $image.tag }}
{{- if not $tag }}
{{- fail (printf "%s.tag is empty: set it to the version of %s." (index . 3) $repository) }}
{{- end }}
{{- printf "%s:%s" $repository $tag }}
{{- end }}

{{/* Everything but link-local addresses and metadata services. Some network plugins never apply an ipBlock to pods, hence
     the namespaceSelector. */}}
{{- define "eso.egress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- if .ports }}
- ports:
{{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}
- to:
    - namespaceSelector: {}
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16, 100.100.100.200/32, 168.63.129.16/32]}
    - ipBlock: {cidr: "::/0", except: ["fe80::/10", "fd00:ec2::254/128"]}
{{- range .allow }}
    - ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* IP families of a Service. */}}
{{- define "eso.families" -}}
{{- with dig "ipFamilyPolicy" "" (default dict .) }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with dig "ipFamilies" list (default dict .) }}
ipFamilies:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{/* The spec of a PodDisruptionBudget; maxUnavailable wins if it is there: list BUDGET SELECTOR. */}}
{{- define "eso.budget" -}}
{{- $budget := index . 0 }}
{{- if hasKey $budget "maxUnavailable" }}
maxUnavailable: {{ $budget.maxUnavailable }}
{{- else }}
minAvailable: {{ $budget.minAvailable }}
{{- end }}
selector:
  matchLabels:
    {{- index . 1 | nindent 4 }}
{{- end }}
