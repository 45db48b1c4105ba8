{{/*
The objects of a component, read from its plain manifests and changed by the values. Names begin with the name of the release, and the namespace is that of
the release, so the release "dralloc" in the namespace "dralloc-system" is the plain installation.
Arguments: root, component (the folder), values (of the component), args (of its container), lease, configuration
(names of the Lease and of the ConfigMap in kube-system that it may write).
*/}}
{{- define "dralloc.manifests" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $args := .args -}}
{{- $lease := .lease -}}
{{- $configuration := .configuration -}}
{{- range $path, $_ := $root.Files.Glob (printf "manifests/%s/*.yaml" .component) }}
{{- if ne (base $path) "kustomization.yaml" }}
{{- $text := $root.Files.Get $path | replace "dralloc-system" $root.Release.Namespace }}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml (replace "dralloc-" (printf "%s-" $root.Release.Name) .) }}
{{- if eq $object.kind "Deployment" }}
{{- $_ := set $object.spec "replicas" $values.replicas }}
{{- $container := index $object.spec.template.spec.containers 0 }}
{{- $_ := set $container "image" (printf "%s:%s" $root.Values.image.repository $root.Values.image.tag) }}
{{- $_ := set $container "args" $args }}
{{- $_ := set $container "resources" $values.resources }}
{{- else if and (eq $object.kind "Role") (eq $object.metadata.namespace "kube-system") }}
{{- range $object.rules }}
{{- if .resourceNames }}{{ $_ := set . "resourceNames" (list (has "configmaps" .resources | ternary $configuration $lease)) }}{{ end }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
