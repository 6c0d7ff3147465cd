// Package release says what is particular to the releases of Kubernetes that
// this program can be built with: one each for go.mod and its siblings.
package release

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/component-base/version"
)

// emulated is an older release that the parts of Kubernetes act as: their APIs
// and feature gates are those of it. The linker sets it. Empty, they act as what
// they are.
var emulated string

// Built is the release in this program, such as "1.36"; or what it acts as,
// such as "1.36-as-1.34".
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

// resize is the gate of pods/resize. Without it the API server serves none and
// the kubelet reports no resources in container statuses, as before it was beta
// (1.33). It is locked on since 1.35.
const resize = "InPlacePodVerticalScaling"

// Settings is how a release is run, and what it has.
type Settings struct {
	// Gates of the API server and of the kubelets that differ from the defaults.
	Gates Gates
	// Mutating is whether it serves MutatingAdmissionPolicy as v1, as all do
	// since 1.36.
	Mutating bool
	// ImageVolumes is whether its Pods can mount images, as by default since
	// 1.35.
	ImageVolumes bool
	// Emulated is the release that its parts act as, where that is an older one.
	Emulated string
}

// Of gives the settings of a release. Those that are not named here are run as
// they come.
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

// Resizes says whether the release, so run, resizes containers in place.
func (s Settings) Resizes() bool {
	on, set := s.Gates[resize]
	return on || !set
}

// Emulation is the flag of what a part of the control plane acts as; none where
// it acts as what it is.
func (s Settings) Emulation() []string {
	if s.Emulated == "" {
		return nil
	}
	return []string{"--emulated-version=" + s.Emulated}
}

// Flags is the command line's way to set gates; none when there are none.
func (g Gates) Flags() []string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		flags = append(flags, "--feature-gates="+name+"="+strconv.FormatBool(g[name]))
	}
	return flags
}
