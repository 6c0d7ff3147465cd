// Package release says what is particular to the releases of Kubernetes that
// this program can be built with: one each for go.mod and its siblings.
package release

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/component-base/version"
)

// Built is the release in this program, such as "1.36".
const Built = version.DefaultKubeBinaryVersion

// Gates are feature gates and whether they are on.
type Gates map[string]bool

// resize is the gate of pods/resize. Without it the API server serves none and
// the kubelet reports no resources in container statuses, as before it was beta
// (1.33). It is locked on since 1.35.
const resize = "InPlacePodVerticalScaling"

// Settings is how a release is run, and what it has.
type Settings struct {
	// Gates of the API server and of the kubelets that differ from the defaults.
	Gates Gates
	// Mutating is whether it serves MutatingAdmissionPolicy as v1.
	Mutating bool
	// ImageVolumes is whether its Pods can mount images.
	ImageVolumes bool
}

// Of gives the settings of a release. Those that are not named here are run as
// they come.
func Of(name string) Settings {
	switch name {
	case "1.34":
		return Settings{Gates: Gates{resize: false}}
	default:
		return Settings{Mutating: true, ImageVolumes: true}
	}
}

// Resizes says whether the release, so run, resizes containers in place.
func (s Settings) Resizes() bool {
	on, set := s.Gates[resize]
	return on || !set
}

// Flags is the command line's way to set gates; none when there are none.
func (g Gates) Flags() []string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		flags = append(flags, "--feature-gates="+name+"="+strconv.FormatBool(g[name]))
	}
	return flags
}
