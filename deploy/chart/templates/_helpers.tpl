{{- /* Written by tools/install_files.py from trainmaster/operator/install; do not edit by hand. */ -}}
{{- define "trainmaster.image" -}}
{{ if .Values.image.registry }}{{ .Values.image.registry }}/{{ end }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "trainmaster.labels" -}}
app.kubernetes.io/part-of: trainmaster
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "trainmaster.settings" -}}
{{- $log := dict -}}
{{- $_ := set $log "level" (.Values.log.level) -}}
{{- $_ := set $log "form" (.Values.log.form) -}}
{{- $operator := dict -}}
{{- $_ := set $operator "lease_namespace" (.Release.Namespace) -}}
{{- $_ := set $operator "companion" (.Values.companion) -}}
{{- $_ := set $operator "namespaces" (.Values.watchNamespaces) -}}
{{- $_ := set $operator "instance" (.Values.instance) -}}
{{- $_ := set $operator "v1_jobs" (.Values.v1Jobs) -}}
{{- $_ := set $operator "gang_scheduler_name" (.Values.gangSchedulerName) -}}
{{- if .Values.history.enabled }}{{- $_ := set $operator "history" (.Values.history.directory) -}}{{- end -}}
{{- if and .Values.history.enabled (not .Values.history.records.enabled) }}{{- $_ := set $operator "records_port" (0) -}}{{- end -}}
{{- $_ := set $operator "progress" (.Values.progress.enabled) -}}
{{- $_ := set $operator "webhooks" (.Values.webhook.enabled) -}}
{{- if .Values.webhook.certManager.enabled }}{{- $_ := set $operator "webhook_cert_dir" ("/etc/trainmaster-webhook") -}}{{- end -}}
{{- $_ := set $operator "metrics_secure" (.Values.metrics.secure) -}}
{{- range $key, $value := .Values.manager.config }}{{- $_ := set $operator $key $value }}{{- end -}}
[log]
{{- range $key, $value := $log }}
{{ $key }} = {{ toJson $value }}
{{- end }}

[operator]
{{- range $key, $value := $operator }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}

{{- define "trainmaster.v1Jobs" -}}
{{- ternary (list "pytorchjob" "tfjob" "mpijob" "xgboostjob" "paddlejob" "jaxjob" "mxjob") .Values.v1Jobs (has "all" .Values.v1Jobs) | toJson -}}
{{- end }}
