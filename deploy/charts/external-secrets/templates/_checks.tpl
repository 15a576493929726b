{{/* What cannot work ends here, with the value and the way out. What the schema can say is said there. */}}
{{- define "eso.checks" -}}
{{- $values := .Values }}
{{- $global := default dict $values.global }}
{{- if hasSuffix "external-secrets/external-secrets" (toString $values.image.repository) }}
{{- fail "image.repository names the image of the operator in Go: remove it, and set image.registry to the registry path that holds eso-operator." }}
{{- end }}
{{- if $global.repository }}
{{- fail "global.repository names one image for every pod, but operator and providers have an image each: remove it, and set image.registry to the registry path that holds them." }}
{{- end }}
{{- if and $values.metrics.listen.auth.enabled (not $values.metrics.listen.secure.enabled) }}
{{- fail "metrics.listen.auth.enabled needs metrics.listen.secure.enabled: a token must not travel in the clear." }}
{{- end }}
{{- if dig "enabled" false (default dict (get $values "bitwarden-sdk-server")) }}
{{- fail "bitwarden-sdk-server.enabled: this chart does not contain that server; install its own chart first, because this upgrade removes the running one, and set the value to false." }}
{{- end }}
{{- if and (not $values.processPushSecret) $values.processClusterPushSecret (not $values.scopedRBAC) }}
{{- fail "processPushSecret=false needs processClusterPushSecret=false: ClusterPushSecrets create PushSecrets." }}
{{- end }}
{{- range $name, $_ := $values.providers }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$" $name) }}
{{- fail (printf "providers.%s: the name of a provider has lower case letters, digits and dashes, 40 at most, as in eso-provider-NAME." $name) }}
{{- end }}
{{- end }}
{{- $known := (fromYaml (.Files.Get "files/defaults.yaml")).providers }}
{{- range $name, $_ := $values.extraProviders }}
{{- if hasKey $known $name }}
{{- fail (printf "extraProviders.%s: this chart has a provider of that name: use providers.%s, or another name." $name $name) }}
{{- end }}
{{- end }}
{{- range $name := default list (dig "providers" list (default dict $values.crds)) }}
{{- if not (has $name (without (keys $known) "shared")) }}
{{- fail (printf "crds.providers: this chart has no CRDs of a provider %s, only of %s." $name (without (keys $known | sortAlpha) "shared" | join ", ")) }}
{{- end }}
{{- end }}
{{- range $name := (fromJson (include "eso.shared" .)).names }}
{{- if not (or (hasKey $values.providers $name) (dig "shared" "image" "repository" "" $values.providers)) }}
{{- fail (printf "providers.shared.names: the image eso-providers has no provider %s, only %s; correct the name, or set providers.shared.image.repository to an image of your own that has it." $name (without (keys $known | sortAlpha) "shared" | join ", ")) }}
{{- end }}
{{- if eq $name "shared" }}
{{- fail "providers.shared.names holds the names of providers, for example [generators, webhook]; shared is none." }}
{{- end }}
{{- range $key := list "image" "resources" "securityContext" "extraEnv" "extraVolumeMounts" "metrics" }}
{{- if hasKey (default dict (get $values.providers $name)) $key }}
{{- fail (printf "providers.%s.%s has no effect while providers.shared.names holds %s: one container runs all of them; set providers.shared.%s instead." $name $key $name $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- $shared := dig "shared" dict (default dict $values.providers) }}
{{- if and (dig "enabled" false $shared) (not $shared.names) }}
{{- fail "providers.shared.enabled needs providers.shared.names: the providers to put into one Deployment, for example {generators,webhook}." }}
{{- end }}
{{- end }}
