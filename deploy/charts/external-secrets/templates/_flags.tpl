{{/* The operator's flags, in the order of the chart in Go: the last one wins, so log.level beats extraArgs.loglevel. */}}

{{/* The port of the probes, empty if both are off. */}}
{{- define "eso.livePort" -}}
{{- if or .Values.livenessProbe.enabled .Values.readinessProbe.enabled }}
{{- $spec := .Values.livenessProbe.spec }}
{{- $named := dig "httpGet" "port" "live" $spec }}
{{- if kindIs "string" $named }}{{ int (default 8082 $spec.port) }}{{ else }}{{ int $named }}{{ end }}
{{- end }}
{{- end }}

{{/* The one namespace that is served, empty for all. */}}
{{- define "eso.served" -}}
{{- if .Values.scopedNamespace }}
{{- .Values.scopedNamespace }}
{{- else if .Values.scopedRBAC }}
{{- include "eso.namespace" . }}
{{- end }}
{{- end }}

{{/* A replica for each shard, and the spare ones that were asked for. */}}
{{- define "eso.replicas" -}}
{{- max (int .Values.replicaCount) (int .Values.shards) }}
{{- end }}

{{/* Whether anyone outside of the pod is to read metrics. */}}
{{- define "eso.metricsOpen" -}}
{{- if or .Values.metrics.service.enabled .Values.serviceMonitor.enabled .Values.metrics.listen.secure.enabled }}true{{ end }}
{{- end }}

{{- define "eso.flags" -}}
{{- $values := .Values }}
{{- if or $values.leaderElect (gt (int (include "eso.replicas" .)) 1) }}
- --enable-leader-election=true
{{- end }}
{{- if gt (int $values.shards) 1 }}
- --shards={{ $values.shards }}
{{- end }}
{{- range $flag, $value := dict "leader-election-id" $values.leaderElectionID "leader-election-lease-duration" $values.leaderElectionLeaseDuration "leader-election-renew-deadline" $values.leaderElectionRenewDeadline "leader-election-retry-period" $values.leaderElectionRetryPeriod }}
{{- if $value }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
- --core-namespace={{ include "eso.namespace" . }}
- --trust-domain={{ $values.trustDomain }}
{{- with include "eso.served" . }}
- --namespace={{ . }}
{{- end }}
{{- if or $values.scopedRBAC (not $values.processClusterStore) }}
- --enable-cluster-store-reconciler=false
{{- end }}
{{- if or $values.scopedRBAC (not $values.processClusterExternalSecret) }}
- --enable-cluster-external-secret-reconciler=false
{{- end }}
{{- if or $values.scopedRBAC (not $values.processClusterPushSecret) }}
- --enable-cluster-push-secret-reconciler=false
{{- end }}
{{- if not $values.processSecretStore }}
- --enable-secret-store-reconciler=false
{{- end }}
{{- if not $values.processPushSecret }}
- --enable-push-secret-reconciler=false
{{- end }}
{{- with $values.storeRequeueInterval }}
- {{ printf "--store-requeue-interval=%v" . | quote }}
{{- end }}
{{- with $values.controllerClass }}
- {{ printf "--controller-class=%s" . | quote }}
{{- end }}
{{- if $values.extendedMetricLabels }}
- --enable-extended-metric-labels=true
{{- end }}
{{- with $values.concurrent }}
- --concurrent={{ int . }}
{{- end }}
{{- if $values.genericTargets.enabled }}
- --unsafe-allow-generic-targets=true
{{- end }}
{{- with $values.featureGates }}
{{- $gates := list }}
{{- range $gate, $on := . }}
{{- $gates = append $gates (printf "%s=%v" $gate $on) }}
{{- end }}
- --feature-gates={{ join "," $gates }}
{{- end }}
{{- with $values.extraArgs }}
{{- include "eso.extraArgs" . }}
{{- end }}
- --metrics-addr={{ if not (include "eso.metricsOpen" .) }}127.0.0.1{{ end }}:{{ $values.metrics.listen.port }}
- --loglevel={{ $values.log.level }}
- --zap-time-encoding={{ $values.log.timeEncoding }}
{{- with include "eso.livePort" . }}
- --live-addr={{ dig "address" "" $values.livenessProbe.spec }}:{{ . }}
{{- end }}
{{- with $values.metrics.listen.secure }}
{{- if .enabled }}
- --metrics-secure=true
- --metrics-cert-dir={{ .certDir }}
- --metrics-cert-name={{ .certFile }}
- --metrics-key-name={{ .keyFile }}
{{- end }}
{{- end }}
{{- if $values.metrics.listen.auth.enabled }}
- --metrics-auth=true
{{- end }}
{{- end }}
