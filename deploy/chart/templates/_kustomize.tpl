{{- /*
The part of kustomize that deploy/ uses: resources, and JSON patches with test, replace and add. Anything more is an error,
so that the chart never installs less than kustomize does.
*/ -}}

{{- /* The text of a file of deploy/, for the release's namespace. Takes root, path. */ -}}
{{- define "pitstop.text" -}}
{{- $text := .root.Files.Get (printf "files/%s" .path) | replace "pitstop-system" .root.Release.Namespace -}}
{{- $text | required (printf "the chart has no file files/%s" .path) -}}
{{- end -}}

{{- /* Adds a folder's resources to .objects.all, and patches them. Takes root, objects, folder. */ -}}
{{- define "pitstop.kustomize" -}}
{{- $root := .root -}}{{- $objects := .objects -}}{{- $folder := .folder -}}
{{- $path := printf "%s/kustomization.yaml" $folder -}}
{{- $kustomization := include "pitstop.text" (dict "root" $root "path" $path) | fromYaml -}}
{{- with omit $kustomization "apiVersion" "kind" "resources" "patches" -}}
  {{- fail (printf "%s uses what this chart does not know: %s" $path (keys . | join ", ")) -}}
{{- end -}}
{{- range $kustomization.resources -}}
  {{- $path := clean (printf "%s/%s" $folder .) -}}
  {{- if hasSuffix ".yaml" $path -}}
    {{- range $text := regexSplit "(?m)^---[ \\t]*(#.*)?\\r?$" (include "pitstop.text" (dict "root" $root "path" $path)) -1 -}}
      {{- $object := fromYaml $text -}}
      {{- $_ := $object.kind | required (printf "%s has something that is no object" $path) -}}
      {{- $_ := set $objects "all" (append $objects.all (dict "text" $text "was" $object "is" (deepCopy $object))) -}}
    {{- end -}}
  {{- else if or $root.Values.crds.install (ne $path "crds") -}}
    {{- include "pitstop.kustomize" (dict "root" $root "objects" $objects "folder" $path) -}}
  {{- end -}}
{{- end -}}
{{- range $patch := $kustomization.patches -}}
  {{- $found := list -}}
  {{- range $objects.all -}}
    {{- if and (eq .is.kind $patch.target.kind) (eq .is.metadata.name $patch.target.name) -}}
      {{- $found = append $found .is -}}
    {{- end -}}
  {{- end -}}
  {{- if ne (len $found) 1 -}}
    {{- fail (printf "%s patches %d objects" $path (len $found)) -}}
  {{- end -}}
  {{- range fromYamlArray $patch.patch -}}
    {{- include "pitstop.patch" (dict "object" (first $found) "operation" . "where" $path) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Carries out one operation of a JSON patch in the object itself. Takes object, operation, where. */ -}}
{{- define "pitstop.patch" -}}
{{- $op := .operation.op -}}{{- $value := .operation.value -}}
{{- $failed := printf "%s: cannot %s %s" .where $op .operation.path -}}
{{- if contains "~" .operation.path -}}{{- fail $failed -}}{{- end -}}
{{- $keys := splitList "/" (trimPrefix "/" .operation.path) -}}
{{- $key := last $keys -}}
{{- /* Templates cannot change a list, only replace it: $owner.$name is the field that holds $at. */ -}}
{{- $at := .object -}}{{- $owner := dict -}}{{- $name := "" -}}
{{- range initial $keys -}}
  {{- if kindIs "slice" $at -}}
    {{- $at = index $at (int .) -}}
  {{- else if hasKey $at . -}}
    {{- $owner = $at -}}{{- $name = . -}}{{- $at = get $at . -}}
  {{- else -}}
    {{- fail $failed -}}
  {{- end -}}
{{- end -}}
{{- if and (kindIs "slice" $at) (eq $op "add") (eq $key "-") -}}
  {{- $_ := set $owner $name (append $at $value) -}}
{{- else if and (kindIs "slice" $at) (eq $op "replace") (lt (int $key) (len $at)) -}}
  {{- $behind := slice $at (add1 (int $key) | int) -}}
  {{- $_ := set $owner $name (concat (slice $at 0 (int $key)) (list $value) $behind) -}}
{{- else if and (kindIs "map" $at) (eq $op "test") (hasKey $at $key) (deepEqual (get $at $key) $value) -}}
{{- else if and (kindIs "map" $at) (eq $op "replace") (hasKey $at $key) -}}
  {{- $_ := set $at $key $value -}}
{{- else if and (kindIs "map" $at) (eq $op "add") (not (hasKey $at $key)) -}}
  {{- $_ := set $at $key $value -}}
{{- else -}}
  {{- fail $failed -}}
{{- end -}}
{{- end -}}
