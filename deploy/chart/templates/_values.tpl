{{- /* Applies the values. */ -}}

{{- /* Not empty if the API server serves mutating policies, or gate.mode is policy. */ -}}
{{- define "pitstop.policies" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if or $served (eq .Values.gate.mode "policy") -}}served{{- end -}}
{{- end -}}

{{- /* The folder that kubectl would apply. */ -}}
{{- define "pitstop.folder" -}}
{{- $policy := and (include "pitstop.policies" .) (ne .Values.gate.mode "webhook") -}}
{{- ternary "default" "overlays/gate-webhook" (not (empty $policy)) -}}
{{- end -}}

{{- /* The names of the components, as a list in JSON. */ -}}
{{- define "pitstop.components" -}}
{{- $names := list -}}
{{- if not (has .Values.runtime.preset (list "containerd" "custom")) -}}{{- $names = append $names .Values.runtime.preset -}}{{- end -}}
{{- if .Values.lockedNamespace -}}{{- $names = append $names "locked-namespace" -}}{{- end -}}
{{- if .Values.seccomp.localhost -}}{{- $names = append $names "seccomp" -}}{{- end -}}
{{- if .Values.monitoring.enabled -}}{{- $names = append $names "monitoring" -}}{{- end -}}
{{- with .Values.features -}}
  {{- if .resizeCri -}}{{- $names = append $names "resize-cri" -}}{{- end -}}
  {{- if .evict -}}{{- $names = append $names "resize-evict" -}}{{- end -}}
  {{- if .imageUpdate -}}{{- $names = append $names "image-update" -}}{{- end -}}
  {{- if .imagePuller -}}{{- $names = append $names "image-puller" -}}{{- end -}}
  {{- if .inPlace -}}{{- $names = append $names "in-place" -}}{{- end -}}
{{- end -}}
{{- if and .Values.features.inPlace (include "pitstop.policies" .) -}}{{- $names = append $names "park" -}}{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- /* Refuses values that contradict each other, or would do nothing. */ -}}
{{- define "pitstop.refuse" -}}
{{- $namespace := .Release.Namespace -}}
{{- with .Values -}}
{{- if or (eq $namespace "default") (hasPrefix "kube-" $namespace) -}}
  {{- fail (printf "pitstop needs a namespace of its own, such as pitstop-system, not %s: its NetworkPolicies close the namespace to all other Pods" $namespace) -}}
{{- end -}}
{{- if ne (printf "of: %s" $namespace | fromYaml | dig "of" "" | kindOf) "string" -}}
  {{- fail (printf "the namespace %s would be no text in YAML: take another name" $namespace) -}}
{{- end -}}
{{- if not (or .image.registry (eq .image.pullPolicy "Never")) -}}
  {{- fail "image.registry: a registry must be named: the chart must not pull a stranger's image. If the images are on the nodes, set image.pullPolicy=Never." -}}
{{- end -}}
{{- if and (eq .runtime.preset "custom") (not .runtime.socket) -}}
  {{- fail "runtime.preset=custom needs runtime.socket" -}}
{{- end -}}
{{- if and .runtime.socket (ne .runtime.preset "custom") -}}
  {{- fail "runtime.socket needs runtime.preset=custom" -}}
{{- end -}}
{{- if has (dir .runtime.socket) (list "/var/run" "/var/lib") -}}
  {{- fail (printf "runtime.socket: its folder is mounted, and %s has much of other programs" (dir .runtime.socket)) -}}
{{- end -}}
{{- if and .features.imagePuller (not .features.imageUpdate) -}}
  {{- fail "features.imagePuller needs features.imageUpdate" -}}
{{- end -}}
{{- if and .features.inPlace (not .features.imageUpdate) -}}
  {{- fail "features.inPlace needs features.imageUpdate" -}}
{{- end -}}
{{- if and .optIn.namespaces (not .features.inPlace) -}}
  {{- fail "optIn.namespaces needs features.inPlace" -}}
{{- end -}}
{{- /* Helm creates RoleBindings before policies: if one fails, rights would stay without their policies. */ -}}
{{- range .optIn.namespaces -}}
  {{- if and (lookup "v1" "Namespace" "" "kube-system") (not (lookup "v1" "Namespace" "" .)) -}}
    {{- fail (printf "optIn.namespaces: there is no namespace %s" .) -}}
  {{- end -}}
{{- end -}}
{{- if and .monitoring.labels (not .monitoring.enabled) -}}
  {{- fail "monitoring.labels needs monitoring.enabled" -}}
{{- end -}}
{{- if and .networkPolicy.apiServerPorts (not .networkPolicy.enabled) -}}
  {{- fail "networkPolicy.apiServerPorts needs networkPolicy.enabled" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Changes an object according to the values. Takes root, object. */ -}}
{{- define "pitstop.change" -}}
{{- $values := .root.Values -}}{{- $object := .object -}}{{- $name := $object.metadata.name -}}
{{- if eq $object.kind "Deployment" -}}
  {{- $args := ternary (list "--kruise-crr-off") list $values.kruiseCrrOff -}}
  {{- include "pitstop.workload" (dict "root" .root "object" $object "program" "controller" "args" $args) -}}
{{- else if eq $object.kind "DaemonSet" -}}
  {{- $args := list -}}
  {{- with $values.runtime.socket -}}
    {{- $args = list (printf "--runtime-endpoint=%s" .) -}}
    {{- include "pitstop.socket" (dict "pod" $object.spec.template.spec "folder" (dir .)) -}}
  {{- end -}}
  {{- include "pitstop.workload" (dict "root" .root "object" $object "program" "daemon" "args" $args) -}}
{{- else if and (has $object.kind (list "PodMonitor" "PrometheusRule")) $values.monitoring.labels -}}
  {{- $_ := set $object.metadata "labels" (merge (deepCopy $values.monitoring.labels) $object.metadata.labels) -}}
{{- else if and (eq $object.kind "CustomResourceDefinition") $values.crds.keep -}}
  {{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") -}}
{{- else if and (eq $object.kind "ClusterRole") (not $values.rbac.aggregate) -}}
  {{- range keys $object.metadata.labels -}}
    {{- if hasPrefix "rbac.authorization.k8s.io/aggregate-to-" . -}}{{- $_ := unset $object.metadata.labels . -}}{{- end -}}
  {{- end -}}
{{- else if and (eq $object.kind "NetworkPolicy") (eq $name "pitstop-controller") $values.networkPolicy.apiServerPorts -}}
  {{- $ports := list -}}
  {{- range $values.networkPolicy.apiServerPorts -}}
    {{- $ports = append $ports (dict "protocol" "TCP" "port" .) -}}
  {{- end -}}
  {{- $_ := set $object.spec "egress" (list (dict "ports" $ports)) -}}
{{- end -}}
{{- end -}}

{{- /* Changes a workload and its Pods. Takes root, object, program, args. */ -}}
{{- define "pitstop.workload" -}}
{{- $pod := .object.spec.template.spec -}}{{- $container := first $pod.containers -}}
{{- $values := get .root.Values .program -}}
{{- $image := dict "root" .root "image" (get .root.Values.image .program) "was" $container.image -}}
{{- $_ := set $container "image" (include "pitstop.image" $image) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- with .root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- $architectures := .root.Values.image.architectures -}}
{{- if eq (len $architectures) 1 -}}
  {{- $_ := set $pod.nodeSelector "kubernetes.io/arch" (first $architectures) -}}
{{- else -}}
  {{- /* A node selector has one value per label. */ -}}
  {{- $_ := unset $pod.nodeSelector "kubernetes.io/arch" -}}
{{- end -}}
{{- with $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (merge (deepCopy .) $pod.nodeSelector) -}}{{- end -}}
{{- with $values.tolerations -}}{{- $_ := set $pod "tolerations" . -}}{{- end -}}
{{- if eq $values.priorityClassName "none" -}}
  {{- $_ := unset $pod "priorityClassName" -}}
{{- else if $values.priorityClassName -}}
  {{- $_ := set $pod "priorityClassName" $values.priorityClassName -}}
{{- end -}}
{{- with concat .args $values.extraArgs -}}
  {{- $_ := set $container "args" (concat ($container.args | default list) .) -}}
{{- end -}}
{{- end -}}

{{- /* An image with registry, tag and digest. Takes root, image, was (the image in deploy/). */ -}}
{{- define "pitstop.image" -}}
{{- $registry := .root.Values.image.registry | default (dir .was) -}}
{{- $tag := .image.tag | default (ternary "" .root.Chart.AppVersion (not (empty .image.digest))) -}}
{{- printf "%s/%s" $registry .image.repository -}}
{{- with $tag -}}{{- printf ":%s" . -}}{{- end -}}
{{- with .image.digest -}}{{- printf "@%s" . -}}{{- end -}}
{{- end -}}

{{- /* Mounts another folder for the runtime's socket, at the node's own path. Takes pod, folder. */ -}}
{{- define "pitstop.socket" -}}
{{- $folder := .folder -}}
{{- range (first .pod.containers).volumeMounts -}}
  {{- if eq .name "runtime" -}}{{- $_ := set . "mountPath" $folder -}}{{- end -}}
{{- end -}}
{{- range .pod.volumes -}}
  {{- if eq .name "runtime" -}}{{- $_ := set .hostPath "path" $folder -}}{{- end -}}
{{- end -}}
{{- end -}}
