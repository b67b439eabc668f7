{{- define "threadtide.labels" -}}
app.kubernetes.io/name: tide-kube
app.kubernetes.io/part-of: threadtide
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "threadtide.selector" -}}
app.kubernetes.io/name: tide-kube
{{- end }}

{{- define "threadtide.nodeImage" -}}
{{ .Values.nodeImage.repository }}:{{ .Values.nodeImage.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "threadtide.powerLabels" -}}
app.kubernetes.io/name: tide-power
app.kubernetes.io/part-of: threadtide
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "threadtide.powerImage" -}}
"{{ .Values.power.image.repository }}:{{ .Values.power.image.tag | default .Chart.AppVersion }}"
{{- end }}

{{- define "threadtide.injectLabels" -}}
app.kubernetes.io/name: tide-inject
app.kubernetes.io/part-of: threadtide
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "threadtide.podsLabels" -}}
app.kubernetes.io/name: tide-pods
app.kubernetes.io/part-of: threadtide
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "threadtide.podsImage" -}}
"{{ .Values.pods.image.repository }}:{{ .Values.pods.image.tag | default .Chart.AppVersion }}"
{{- end }}
