{{/* One Deployment with one provider or several, and what belongs to it. The chart eso-provider links this file.

A unit is a dict:
  root      the root context
  name      of the Deployment, the account and the policy: provider-NAME
  settings  of the pods: the keys of providerDefaults
  members   a list of dicts with `name` and `settings`: one Service each, and one container each unless they share one
  shared    whether one container runs all members, with the settings of the unit; then each member has `own`, its values
  operator  who may call: namespace, serviceAccount, trustDomain, podLabels
  metrics   what the names of the metrics Services begin with
*/}}

{{- define "eso.unit" -}}
{{- include "eso.unit.account" . }}
{{- include "eso.unit.deployment" . }}
{{- range $index, $member := .members }}
{{- include "eso.unit.services" (dict "unit" $ "index" $index "member" $member) }}
{{- end }}
{{- include "eso.unit.policy" . }}
{{- if dig "enabled" false (default dict .settings.podDisruptionBudget) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "eso.unit.metadata" (list . .name) | nindent 2 }}
spec:
  {{- include "eso.budget" (list .settings.podDisruptionBudget (include "eso.unit.selector" .)) | trim | nindent 2 }}
{{- end }}
{{- end }}

{{- define "eso.unit.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "eso.unit.labels" -}}
{{ include "eso.unit.selector" . }}
external-secrets.io/component: provider
{{ include "eso.commonLabels" .root }}
{{- end }}

{{/* list UNIT NAME */}}
{{- define "eso.unit.metadata" -}}
{{- $unit := index . 0 }}
name: {{ index . 1 }}
namespace: {{ include "eso.namespace" $unit.root }}
labels:
  {{- include "eso.unit.labels" $unit | nindent 2 }}
{{- end }}

{{/* Whether a member asks the API server about tokens. */}}
{{- define "eso.unit.reviews" -}}
{{- range .members }}{{ if eq (dig "callTokens" "verify" "" .settings) "review" }}true{{ end }}{{ end }}
{{- end }}

{{- define "eso.unit.accountName" -}}
{{- $account := .settings.serviceAccount }}
{{- if $account.name }}{{ $account.name }}{{ else if or $account.create $account.annotations (include "eso.unit.reviews" .) }}{{ .name }}{{ end }}
{{- end }}

{{- define "eso.unit.account" -}}
{{- $account := .settings.serviceAccount }}
{{- $named := include "eso.unit.accountName" . }}
{{- if and $named (or $account.create (not $account.name)) }}
---
# Who the provider is: to the API server when it asks about tokens, and to a cloud.
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "eso.unit.metadata" (list . $named) | nindent 2 }}
{{- with $account.extraLabels }}
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
{{- if and (include "eso.unit.reviews" .) (dig "create" true (default dict .root.Values.rbac)) }}
{{- $role := printf "%s-%s-token-reviews" (include "eso.namespace" .root) .name }}
---
# Whether a token is good: the provider may ask that, and nothing else.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $role }}
  labels:
    {{- include "eso.unit.labels" . | nindent 4 }}
rules:
  - apiGroups: [authentication.k8s.io]
    resources: [tokenreviews]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $role }}
  labels:
    {{- include "eso.unit.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $role }}}
subjects:
  - {kind: ServiceAccount, name: {{ $named }}, namespace: {{ include "eso.namespace" .root }}}
{{- end }}
{{- end }}

{{- define "eso.unit.deployment" -}}
{{- $unit := . }}
{{- $settings := .settings }}
{{- $account := include "eso.unit.accountName" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "eso.unit.metadata" (list . .name) | nindent 2 }}
{{- with $settings.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
spec:
  replicas: {{ $settings.replicaCount }}
{{- if kindIs "invalid" $settings.revisionHistoryLimit | not }}
  revisionHistoryLimit: {{ $settings.revisionHistoryLimit }}
{{- end }}
{{- with $settings.strategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
{{- end }}
  selector:
    matchLabels:
      {{- include "eso.unit.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "eso.unit.labels" . | nindent 8 }}
{{- with $settings.podLabels }}
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- with $settings.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
{{- end }}
    spec:
{{- with $account }}
      serviceAccountName: {{ . }}
{{- end }}
      # The operator sends what a provider needs with every call. A provider that asks the API server whether tokens are good
      # has a token for that in a folder of its own, where no login of a store reads it.
      automountServiceAccountToken: {{ dig "automount" false $settings.serviceAccount }}
{{- with include "eso.podSpec" (dict "root" .root "settings" $settings "selector" (include "eso.unit.selector" .)) }}
      {{- . | nindent 6 }}
{{- end }}
      containers:
{{- if .shared }}
        {{- include "eso.unit.sharedContainer" . | nindent 8 }}
{{- else }}
{{- range $index, $member := .members }}
        {{- include "eso.unit.container" (dict "unit" $unit "index" $index "member" $member) | nindent 8 }}
{{- end }}
{{- end }}
      volumes:
{{- range .members }}
        - name: {{ .name }}-tls
          secret: {secretName: provider-{{ .name }}-provider-tls}
{{- end }}
{{- if include "eso.unit.reviews" . }}
        - name: token-review
          projected:
            sources:
              - serviceAccountToken: {path: token, expirationSeconds: 3607}
              - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with $settings.extraVolumes }}
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{/* The ports of a member by its index: those of the first one have plain names. */}}
{{- define "eso.unit.port" -}}
{{- $base := dict "grpc" 8080 "metrics" 8081 "live" 8082 }}
{{- if eq (index . 0) "metrics" }}{{ $_ := set $base "metrics" (int (dig "metrics" "listen" "port" 8081 (index . 2))) }}{{ end }}
{{- add (get $base (index . 0)) (mul 10 (index . 1)) }}
{{- end }}

{{- define "eso.unit.metricsOpen" -}}
{{- if or (dig "metrics" "service" "enabled" false .settings) (dig "enabled" false (default dict .root.Values.serviceMonitor)) }}true{{ end }}
{{- end }}

{{- define "eso.unit.container" -}}
{{- $unit := .unit }}
{{- $settings := .member.settings }}
{{- $suffix := ternary "" (printf "-%d" (int .index)) (eq (int .index) 0) }}
{{- $open := include "eso.unit.metricsOpen" (dict "root" $unit.root "settings" $settings) }}
- name: {{ ternary "provider" .member.name (eq (len $unit.members) 1) }}
  image: {{ include "eso.image" (list $unit.root (printf "eso-provider-%s" .member.name) $settings.image .member.path) | quote }}
  imagePullPolicy: {{ dig "pullPolicy" "IfNotPresent" (default dict $settings.image) }}
  args:
    - --listen=0.0.0.0:{{ include "eso.unit.port" (list "grpc" .index) }}
    - --tls-dir=/tls
    - --metrics={{ ternary "0.0.0.0" "127.0.0.1" (eq $open "true") }}:{{ include "eso.unit.port" (list "metrics" .index $settings) }}
    - --live=0.0.0.0:{{ include "eso.unit.port" (list "live" .index) }}
    - --allowed-client=spiffe://{{ $unit.operator.trustDomain }}/ns/{{ $unit.operator.namespace }}/sa/{{ $unit.operator.serviceAccount }}
{{- with include "eso.unit.tokenFlags" (list $unit .member "--") | trim }}
    {{- . | nindent 4 }}
{{- end }}
{{- with include "eso.unit.identityFlags" (list .member "--") | trim }}
    {{- . | nindent 4 }}
{{- end }}
{{- with $settings.extraArgs }}
    {{- include "eso.extraArgs" . | trim | nindent 4 }}
{{- end }}
{{- with $settings.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
{{- end }}
  ports:
    - {name: grpc{{ $suffix }}, containerPort: {{ include "eso.unit.port" (list "grpc" .index) }}, protocol: TCP}
{{- if $open }}
    - {name: metrics{{ $suffix }}, containerPort: {{ include "eso.unit.port" (list "metrics" .index $settings) }}, protocol: TCP}
{{- end }}
    - {name: live{{ $suffix }}, containerPort: {{ include "eso.unit.port" (list "live" .index) }}, protocol: TCP}
  readinessProbe:
    httpGet: {path: /readyz, port: live{{ $suffix }}}
  livenessProbe:
    httpGet: {path: /healthz, port: live{{ $suffix }}}
{{- with $settings.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with include "eso.securityContext" (list $unit.root $settings.securityContext) }}
  securityContext:
    {{- . | nindent 4 }}
{{- end }}
  volumeMounts:
    - {name: {{ .member.name }}-tls, mountPath: /tls, readOnly: true}
{{- if include "eso.unit.reviews" (dict "members" (list .member)) }}
    - {name: token-review, mountPath: /var/run/secrets/external-secrets.io/token-review, readOnly: true}
{{- end }}
{{- with $settings.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The flags that say which tokens a member accepts: list UNIT MEMBER PREFIX. */}}
{{- define "eso.unit.tokenFlags" -}}
{{- $unit := index . 0 }}
{{- $prefix := index . 2 }}
{{- $name := printf "provider-%s" (index . 1).name }}
{{- $tokens := default dict (index . 1).settings.callTokens }}
{{- if $tokens.verify }}
- {{ $prefix }}token-policy={{ $tokens.policy }}
- {{ $prefix }}token-audience=external-secrets-provider/{{ $name }}
- {{ $prefix }}token-audience=external-secrets-provider/{{ include "eso.namespace" $unit.root }}/{{ $name }}
{{- range $tokens.audiences }}
- {{ printf "%stoken-audience=%s" $prefix . | quote }}
{{- end }}
{{- if eq $tokens.verify "review" }}
- {{ $prefix }}token-review
{{- else }}
- {{ printf "%stoken-issuer=%s" $prefix $tokens.issuer | quote }}
- {{ printf "%stoken-jwks=%s" $prefix $tokens.jwks | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The flags that say who may use the identity of a member, and who may receive a proof of it: list MEMBER PREFIX. */}}
{{- define "eso.unit.identityFlags" -}}
{{- $prefix := index . 1 }}
{{- $identity := default dict (index . 0).settings.identity }}
{{- if $identity.usedBy }}
- {{ $prefix }}ambient-identity={{ $identity.usedBy }}
{{- end }}
{{- range $identity.hosts }}
- {{ printf "%sidentity-host=%s" $prefix . | quote }}
{{- end }}
{{- range $identity.files }}
- {{ printf "%sidentity-file=%s" $prefix . | quote }}
{{- end }}
{{- end }}

{{/* One container for all members: a port, a folder of certificates and token audiences for each. */}}
{{- define "eso.unit.sharedContainer" -}}
{{- $unit := . }}
{{- $settings := .settings }}
{{- $open := include "eso.unit.metricsOpen" (dict "root" .root "settings" $settings) }}
- name: providers
  image: {{ include "eso.image" (list .root "eso-providers" $settings.image "providers.shared.image") | quote }}
  imagePullPolicy: {{ dig "pullPolicy" "IfNotPresent" (default dict $settings.image) }}
  args:
{{- range .members }}
    - {{ .name }}
{{- end }}
    - --tls-dir=/tls
    - --metrics={{ ternary "0.0.0.0" "127.0.0.1" (eq $open "true") }}:{{ include "eso.unit.port" (list "metrics" 0 $settings) }}
    - --live=0.0.0.0:{{ include "eso.unit.port" (list "live" 0) }}
    - --allowed-client=spiffe://{{ .operator.trustDomain }}/ns/{{ .operator.namespace }}/sa/{{ .operator.serviceAccount }}
{{- with $settings.extraArgs }}
    {{- include "eso.extraArgs" . | trim | nindent 4 }}
{{- end }}
{{- range $index, $member := .members }}
    - --{{ .name }}.listen=0.0.0.0:{{ include "eso.unit.port" (list "grpc" $index) }}
{{- with include "eso.unit.tokenFlags" (list $unit $member (printf "--%s." .name)) | trim }}
    {{- . | nindent 4 }}
{{- end }}
{{- with include "eso.unit.identityFlags" (list $member (printf "--%s." .name)) | trim }}
    {{- . | nindent 4 }}
{{- end }}
{{- $flags := dict }}
{{- range $flag, $value := $member.own.extraArgs }}
{{- $_ := set $flags (printf "%s.%s" $member.name $flag) $value }}
{{- end }}
{{- with $flags }}
    {{- include "eso.extraArgs" . | trim | nindent 4 }}
{{- end }}
{{- end }}
{{- with $settings.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
{{- end }}
  ports:
{{- range $index, $_ := .members }}
    - {name: grpc{{ ternary "" (printf "-%d" (int $index)) (eq (int $index) 0) }}, containerPort: {{ include "eso.unit.port" (list "grpc" $index) }}, protocol: TCP}
{{- end }}
{{- if $open }}
    - {name: metrics, containerPort: {{ include "eso.unit.port" (list "metrics" 0 $settings) }}, protocol: TCP}
{{- end }}
    - {name: live, containerPort: {{ include "eso.unit.port" (list "live" 0) }}, protocol: TCP}
  # Ready while one provider serves: a provider that fails must not take the calls of the others away.
  readinessProbe:
    httpGet: {path: /readyz, port: live}
  livenessProbe:
    httpGet: {path: /healthz, port: live}
{{- with $settings.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with include "eso.securityContext" (list .root $settings.securityContext) }}
  securityContext:
    {{- . | nindent 4 }}
{{- end }}
  volumeMounts:
{{- range .members }}
    - {name: {{ .name }}-tls, mountPath: /tls/{{ .name }}, readOnly: true}
{{- end }}
{{- if include "eso.unit.reviews" . }}
    - {name: token-review, mountPath: /var/run/secrets/external-secrets.io/token-review, readOnly: true}
{{- end }}
{{- with $settings.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "eso.unit.services" -}}
{{- $unit := .unit }}
{{- $settings := .member.settings }}
{{- $name := printf "provider-%s" .member.name }}
{{- $suffix := ternary "" (printf "-%d" (int .index)) (eq (int .index) 0) }}
---
# Headless, so that the operator sees every replica and spreads its calls.
apiVersion: v1
kind: Service
metadata:
  {{- include "eso.unit.metadata" (list $unit $name) | nindent 2 }}
    external-secrets.io/provider: "true"
{{- with .member.serves }}
  # The operator knows from these what the provider serves before the first pod answers.
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
spec:
  clusterIP: None
{{- with include "eso.families" $settings.service | trim }}
  {{- . | nindent 2 }}
{{- end }}
  selector:
    {{- include "eso.unit.selector" $unit | nindent 4 }}
  ports:
    # The port of the container: the name of a headless Service stands for its pods.
    - {name: grpc, port: {{ include "eso.unit.port" (list "grpc" .index) }}, targetPort: grpc{{ $suffix }}, protocol: TCP}
{{- if and $unit.shared (eq (int .index) 0) }}
{{- $settings = $unit.settings }}
{{- $name = $unit.name }}
{{- end }}
{{- if and (include "eso.unit.metricsOpen" (dict "root" $unit.root "settings" $settings)) (or (not $unit.shared) (eq (int .index) 0)) }}
---
# No label of a provider: the operator makes a class of each Service that has it.
apiVersion: v1
kind: Service
metadata:
  {{- include "eso.unit.metadata" (list $unit (printf "%s%s-metrics" $unit.metrics $name)) | nindent 2 }}
    app.kubernetes.io/component: provider-metrics
{{- with dig "metrics" "service" "annotations" dict $settings }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
spec:
{{- with include "eso.families" $settings.service | trim }}
  {{- . | nindent 2 }}
{{- end }}
  selector:
    {{- include "eso.unit.selector" $unit | nindent 4 }}
  ports:
    - {name: metrics, port: {{ dig "metrics" "service" "port" 8081 $settings }}, targetPort: metrics{{ $suffix }}, protocol: TCP}
{{- end }}
{{- end }}

{{- define "eso.unit.policy" -}}
{{- $unit := . }}
{{- $policy := default dict .settings.networkPolicy }}
{{- $metadata := default dict $policy.metadata }}
{{- $closed := or $policy.egress (dig "deny" true $metadata) }}
{{- if dig "enabled" true $policy }}
---
# Calls come from the operator, probes from the node.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "eso.unit.metadata" (list . .name) | nindent 2 }}
{{- with .settings.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
spec:
  podSelector:
    matchLabels:
      {{- include "eso.unit.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if $closed }}, Egress{{ end }}]
  ingress:
{{- range $index, $member := .members }}
{{- $suffix := ternary "" (printf "-%d" (int $index)) (eq (int $index) 0) }}
    - ports: [{port: grpc{{ $suffix }}, protocol: TCP}]
      from:
        - namespaceSelector:
            matchLabels: {kubernetes.io/metadata.name: {{ $unit.operator.namespace }}}
          podSelector:
            matchLabels:
              {{- toYaml $unit.operator.podLabels | nindent 14 }}
{{- if or (not $unit.shared) (eq (int $index) 0) }}
{{- $probed := ternary $unit.settings $member.settings (eq (toString $unit.shared) "true") }}
    - ports: [{port: live{{ $suffix }}, protocol: TCP}]
{{- if include "eso.unit.metricsOpen" (dict "root" $unit.root "settings" $probed) }}
    - ports: [{port: metrics{{ $suffix }}, protocol: TCP}]
{{- with dig "metrics" "from" list $probed }}
      from:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if $policy.egress }}
  egress:
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    {{- toYaml $policy.egress | nindent 4 }}
{{- else if $closed }}
  egress:
    {{- include "eso.egress" (dict "ports" (dig "ports" (list 443 6443) $metadata) "allow" (dig "allow" list $metadata)) | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
