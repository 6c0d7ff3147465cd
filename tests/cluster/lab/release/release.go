// Package release holds the settings of the Kubernetes releases that this
// program can be built with: one each for go.mod and its siblings.
package release

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/component-base/version"
)

// emulated is an older release that the Kubernetes components emulate: its APIs
// and feature gates. The linker sets it. Empty means no emulation.
var emulated string

// Built is the release in this program, such as "1.36", or "1.36-as-1.34" when
// it emulates 1.34.
var Built = named(version.DefaultKubeBinaryVersion, emulated)

const as = "-as-"

func named(binary, emulated string) string {
	if emulated == "" {
		return binary
	}
	return binary + as + emulated
}

// Gates are feature gates and whether they are on.
type Gates map[string]bool

// resize is the gate of pods/resize. When it is off, the API server does not
// serve pods/resize, and the kubelet reports no resources in container
// statuses, as before beta (1.33). It is locked on since 1.35.
const resize = "InPlacePodVerticalScaling"

// Settings says how to run a release, and what it has.
type Settings struct {
	// Gates of the API server and of the kubelets that differ from the defaults.
	Gates Gates
	// Mutating is whether the release serves MutatingAdmissionPolicy as v1, as
	// all do since 1.36.
	Mutating bool
	// ImageVolumes is whether its Pods can mount images, as by default since
	// 1.35.
	ImageVolumes bool
	// Emulated is the older release that the components emulate; "" for none.
	Emulated string
}

// Of returns the settings of a release. Other releases run with defaults.
func Of(name string) Settings {
	binary, emulated, _ := strings.Cut(name, as)
	settings := Settings{Mutating: true, ImageVolumes: true, Emulated: emulated}
	switch cmp.Or(emulated, binary) {
	case "1.34":
		settings.Mutating, settings.ImageVolumes = false, false
		settings.Gates = Gates{resize: false}
	case "1.35":
		settings.Mutating = false
	}
	return settings
}

// Resizes says whether the release resizes containers in place with these
// settings.
func (s Settings) Resizes() bool {
	on, set := s.Gates[resize]
	return on || !set
}

// Emulation returns the emulation flag of a control plane component; nil
// without emulation.
func (s Settings) Emulation() []string {
	if s.Emulated == "" {
		return nil
	}
	return []string{"--emulated-version=" + s.Emulated}
}

// Flags returns the command-line flags that set the gates; nil for no gates.
func (g Gates) Flags() []string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		flags = append(flags, "--feature-gates="+name+"="+strconv.FormatBool(g[name]))
	}
	return flags
}
