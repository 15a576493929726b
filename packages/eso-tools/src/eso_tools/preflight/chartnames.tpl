{{/* Names and labels, as those of the chart of the operator in Go: others rely on them, and selectors are immutable. */}}

{{/* `helm upgrade --reuse-values` brings the values of the previous chart instead of our defaults. */}}
{{- define "eso.defaults" -}}
{{- range $key, $value := fromYaml (.Files.Get "files/defaults.yaml") }}
{{- if not (hasKey $.Values $key) }}
{{- $_ := set $.Values $key $value }}
{{- end }}
{{- end }}
{{- /* Below, providers of others are like those of this chart. */}}
{{- range $name, $settings := .Values.extraProviders }}
{{- if not (hasKey $settings "enabled") }}
{{- $_ := set $settings "enabled" true }}
{{- end }}
{{- $_ := set $.Values.providers $name $settings }}
{{- end }}
{{- end }}

{{- define "eso.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "eso.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (default .Chart.Name .Values.nameOverride) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* fullname-SUFFIX, with the stem cut so that the whole has 63 characters at most: list ROOT SUFFIX. */}}
{{- define "eso.suffixed" -}}
{{- $suffix := index . 1 }}
{{- include "eso.fullname" (index . 0) | trunc (int (sub 62 (len $suffix))) | trimSuffix "-" }}-{{ $suffix }}
{{- end }}

{{- define "eso.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "eso.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "eso.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "eso.selector" -}}
app.kubernetes.io/name: {{ include "eso.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of every object, besides those of a selector. */}}
{{- define "eso.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "eso.labels" -}}
{{ include "eso.selector" . }}
{{ include "eso.commonLabels" . }}
{{- end }}
