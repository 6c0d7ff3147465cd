// Package containerd says which containerds the nodes of a cluster can run, and
// where their programs lie.
package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The names of the runtimes.
const (
	// One is Debian's containerd, 1.6 in Debian 12.
	One = "containerd-1"
	// Two is the containerd 2.x that is built from the module in
	// tests/cluster/containerd.
	Two = "containerd-2"
)

// Default is what runs where no runtime is named.
const Default = Two

// Names lists every runtime.
func Names() []string { return []string{Two, One} }

// Check refuses a name that no runtime has.
func Check(name string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("--runtime %s: there is no such runtime, only %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// Programs are the programs of every containerd that a node uses.
func Programs() []string { return []string{"containerd", "containerd-shim-runc-v2", "ctr"} }

// Folder is where the runtime's programs lie, or "" when they are installed on
// the machine. The cluster's program is the one that starts the nodes: ours lie
// in a folder beside it, or one above where that program has a folder of its
// own.
func Folder(name, program string) string {
	if name != Two {
		return ""
	}
	beside := filepath.Join(filepath.Dir(program), Two)
	above := filepath.Join(filepath.Dir(filepath.Dir(program)), Two)
	if exists(beside) || !exists(above) {
		return beside
	}
	return above
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
