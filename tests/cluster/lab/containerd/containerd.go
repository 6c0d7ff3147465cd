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

// Default is the runtime if the user names none.
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

// Programs lists the programs of every containerd that a node uses.
func Programs() []string { return []string{"containerd", "containerd-shim-runc-v2", "ctr"} }

// Folder is the folder of the runtime's programs, or "" when they are installed
// on the machine. program is the one that starts the nodes. Our programs lie in
// a folder beside it, or one level above if it has its own folder.
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
