// Package preflight checks the machine before the start. It reports all
// problems at once, each with its cure.
package preflight

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
)

// CNIPlugins is where Debian installs the network plugins.
const CNIPlugins = "/usr/lib/cni"

// Problem is one thing that is missing.
type Problem struct {
	What string
	// Package is the Debian package that cures it. Without a package, Cure says
	// how.
	Package string
	Cure    string
}

// Error reports all problems together.
type Error struct{ Problems []Problem }

// Error names every problem, and one command for all packages.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("this machine cannot run a cluster yet:\n")
	var packages []string
	for _, problem := range e.Problems {
		fmt.Fprintf(&text, "  - %s", problem.What)
		if problem.Cure != "" {
			fmt.Fprintf(&text, ": %s", problem.Cure)
		}
		text.WriteString("\n")
		if problem.Package != "" && !slices.Contains(packages, problem.Package) {
			packages = append(packages, problem.Package)
		}
	}
	if len(packages) > 0 {
		slices.Sort(packages)
		fmt.Fprintf(&text, "cure: apt-get install -y %s\n", strings.Join(packages, " "))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// tool is a program that a node uses, with its Debian package.
type tool struct{ path, pkg string }

// tools are the programs of every node.
var tools = []tool{
	{"runc", "runc"},
	{"iptables", "iptables"},   // the kubelet's own chains, the portmap plugin
	{"nft", "nftables"},        // kube-proxy
	{"conntrack", "conntrack"}, // kube-proxy
	{"mount", "mount"},         // the kubelet's volumes
	{"nsenter", "util-linux"},  // exec
	{"busybox", "busybox-static"},
	{filepath.Join(CNIPlugins, "ptp"), "containernetworking-plugins"},
	{filepath.Join(CNIPlugins, "host-local"), "containernetworking-plugins"},
	{filepath.Join(CNIPlugins, "loopback"), "containernetworking-plugins"},
	{filepath.Join(CNIPlugins, "portmap"), "containernetworking-plugins"},
}

// debianRuntime returns the programs of a node with Debian's containerd.
func debianRuntime() []tool {
	list := []tool{{"socat", "socat"}} // its port-forward
	for _, name := range containerd.Programs() {
		list = append(list, tool{name, "containerd"})
	}
	return list
}

// Check checks the machine. dir is the state directory. program is the
// cluster's own, and pause the one beside it that becomes the pause image.
func Check(dir, program, pause, runtime, driver string) error {
	var problems []Problem
	add := func(p ...Problem) { problems = append(problems, p...) }
	add(checkTools(find, tools)...)
	if folder := containerd.Folder(runtime, program); folder != "" {
		add(checkBuilt(find, runtime, folder)...)
	} else {
		add(checkTools(find, debianRuntime())...)
	}
	add(checkRights()...)
	add(checkCgroups(driver)...)
	if driver == cgroup.Systemd {
		add(checkTools(find, []tool{{box.Systemd, "systemd"}})...)
	}
	if _, err := os.Stat(pause); err != nil {
		add(Problem{
			What: "the program " + pause + " is missing",
			Cure: `build it with the cluster: go build -o ` + filepath.Dir(pause) + `/ -ldflags "..." . ./pause (see README.md)`,
		})
	}
	if path := find("busybox"); path != "" && !static(path) {
		add(Problem{What: path + " is not statically linked", Package: "busybox-static"})
	}
	if filesystem, known := overlay(dir); known && filesystem {
		add(Problem{
			What: "the state directory " + dir + " is on an overlay, on which containerd cannot put its own",
			Cure: "choose a directory on a disk or tmpfs with --dir",
		})
	}
	if len(problems) > 0 {
		return &Error{problems}
	}
	return nil
}

// find returns a program's path, or "". It does not search for absolute names.
func find(name string) string {
	path, err := exec.LookPath(name)
	if err != nil && !filepath.IsAbs(name) {
		// A plain shell of Debian may have no sbin on its path.
		for _, dir := range []string{"/usr/sbin", "/sbin"} {
			if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
	}
	if err != nil {
		return ""
	}
	return path
}

// Find returns the path of a program that Check has found.
func Find(name string) string { return find(name) }

func checkTools(find func(string) string, tools []tool) []Problem {
	var problems []Problem
	for _, tool := range tools {
		if find(tool.path) == "" {
			problems = append(problems, Problem{What: "the program " + tool.path + " is missing", Package: tool.pkg})
		}
	}
	return problems
}

// checkBuilt checks the programs of a runtime that we build.
func checkBuilt(find func(string) string, runtime, folder string) []Problem {
	var problems []Problem
	for _, name := range containerd.Programs() {
		if path := filepath.Join(folder, name); find(path) == "" {
			problems = append(problems, Problem{
				What: "the program " + path + " is missing",
				Cure: "build it with: cargo xtask cluster up --runtime " + runtime,
			})
		}
	}
	return problems
}

// capabilities are the required capabilities (linux/capability.h).
var capabilities = map[string]uint{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_MKNOD": unix.CAP_MKNOD}

func checkRights() []Problem {
	if os.Geteuid() != 0 {
		return []Problem{{What: "this user is not root", Cure: "run it with sudo"}}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return []Problem{{What: "the rights of this process cannot be read", Cure: err.Error()}}
	}
	var problems []Problem
	for name, bit := range capabilities {
		if data[bit/32].Effective&(1<<(bit%32)) == 0 {
			problems = append(problems, Problem{What: "root lacks " + name, Cure: "in a container, run that container with --privileged"})
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.What, b.What) })
	return problems
}

func checkCgroups(driver string) []Problem {
	tree, err := cgroup.Detect()
	if err != nil {
		return []Problem{{What: "control groups cannot be read", Cure: err.Error()}}
	}
	if missing := tree.Missing(); len(missing) > 0 {
		return []Problem{{
			What: "no control group has the controllers " + strings.Join(missing, ", "),
			Cure: "mount them (cgroup v2: mount -t cgroup2 none /sys/fs/cgroup)",
		}}
	}
	if driver == cgroup.Systemd && !tree.V2 {
		return []Problem{{What: "the cgroup driver systemd needs cgroup v2", Cure: "use the cgroup driver " + cgroup.Cgroupfs}}
	}
	if os.Geteuid() == 0 && tree.ReadOnly() {
		return []Problem{{What: "control groups are mounted read-only", Cure: "in a container, run that container with --privileged"}}
	}
	return nil
}

// static says whether a program needs no dynamic loader.
func static(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// overlay reports whether the nearest existing directory is on an overlay.
func overlay(dir string) (is, known bool) {
	for {
		var info unix.Statfs_t
		if err := unix.Statfs(dir, &info); err == nil {
			return info.Type == unix.OVERLAYFS_SUPER_MAGIC, true
		}
		if dir == "/" || dir == "." {
			return false, false
		}
		dir = filepath.Dir(dir)
	}
}
