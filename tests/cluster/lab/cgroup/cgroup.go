// Package cgroup makes and removes the control groups of the lab, on machines
// with cgroup v1 (also hybrid) and v2.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree holds the mount points of the machine's control groups.
type Tree struct {
	// V2 is set when all controllers are in the one unified hierarchy.
	V2 bool
	// mounts holds the mount point of every hierarchy: by controller in v1, and
	// by the empty name for the unified hierarchy.
	mounts map[string]string
}

// required are the controllers without which a kubelet does not start.
var required = []string{"cpu", "cpuset", "memory", "pids"}

// Detect reads how control groups are mounted.
func Detect() (Tree, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Tree{}, err
	}
	return parse(string(text)), nil
}

// parse reads /proc/self/mountinfo; its fields are described in proc(5).
func parse(mountinfo string) Tree {
	tree := Tree{mounts: map[string]string{}}
	for _, line := range strings.Split(mountinfo, "\n") {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			continue
		}
		switch rest[0] {
		case "cgroup2":
			tree.mounts[""] = fields[4]
		case "cgroup":
			for _, option := range strings.Split(rest[2], ",") {
				if option != "rw" && option != "ro" && option != "xattr" && !strings.Contains(option, "_agent=") {
					tree.mounts[option] = fields[4]
				}
			}
		}
	}
	tree.V2 = len(tree.mounts) == 1 && tree.mounts[""] != ""
	return tree
}

// Missing returns the required controllers that the machine lacks.
func (t Tree) Missing() []string {
	available := map[string]bool{}
	for name := range t.mounts {
		available[name] = true
	}
	if t.V2 {
		text, _ := os.ReadFile(filepath.Join(t.mounts[""], "cgroup.controllers"))
		for _, name := range strings.Fields(string(text)) {
			available[name] = true
		}
	}
	var missing []string
	for _, name := range required {
		if !available[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// roots returns every hierarchy's mount point once.
func (t Tree) roots() []string {
	var roots []string
	for _, mount := range t.mounts {
		if !slices.Contains(roots, mount) {
			roots = append(roots, mount)
		}
	}
	slices.Sort(roots)
	return roots
}

// membership is the only hierarchy in which the lab's processes join their
// group. In the others they stay, because the lab does not decide what a test's
// processes may use.
func (t Tree) membership() string {
	if t.V2 {
		return t.mounts[""]
	}
	return t.mounts["pids"]
}

// ReadOnly reports that no groups can be made.
func (t Tree) ReadOnly() bool { return unix.Access(t.membership(), unix.W_OK) != nil }

// Create makes the group in every hierarchy, with all groups above it.
func (t Tree) Create(group string) error {
	for _, root := range t.roots() {
		path := root
		for _, part := range strings.Split(group, "/") {
			if t.V2 {
				if err := delegate(path); err != nil {
					return err
				}
			}
			parent := path
			path = filepath.Join(path, part)
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if root == t.mounts["cpuset"] {
				if err := inheritCPUSet(parent, path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delegate hands all of a v2 group's controllers down to its children.
func delegate(path string) error {
	controllers, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil &&
			slices.Contains(required, name) {
			return fmt.Errorf("hand the %s controller down from %s: %w", name, path, err)
		}
	}
	return nil
}

// inheritCPUSet copies the processors and memory nodes from the group above: a
// v1 cpuset starts empty and then takes no process.
func inheritCPUSet(parent, path string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(path, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// Join puts a process into the group.
func (t Tree) Join(group string, pid int) error {
	return os.WriteFile(filepath.Join(t.membership(), group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// Processes lists the processes of the group and of all below it.
func (t Tree) Processes(group string) []int {
	var pids []int
	_ = filepath.WalkDir(filepath.Join(t.membership(), group), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return nil // a group may vanish during the walk
		}
		text, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Remove removes the group and all below it from every hierarchy. It waits
// because groups stay busy for a moment after their last process was killed.
func (t Tree) Remove(group string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		var failed error
		for _, root := range t.roots() {
			failed = errors.Join(failed, removeTree(filepath.Join(root, group)))
		}
		if failed == nil || time.Now().After(deadline) {
			return failed
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeTree removes directories only, depth first: the files of a control
// group cannot and need not be removed.
func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("rmdir %s: %w", path, err)
	}
	return nil
}

// Leftovers returns the paths of the group that still exist.
func (t Tree) Leftovers(group string) []string {
	var left []string
	for _, root := range t.roots() {
		path := filepath.Join(root, group)
		if _, err := os.Stat(path); err == nil {
			left = append(left, path)
		}
	}
	return left
}
