package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

func TestParseTarget(t *testing.T) {
	for _, one := range []struct {
		text           string
		nodes          int
		box, component string
	}{
		{"apiserver", 3, plan.ControlPlane, "kube-apiserver"},
		{"kube-apiserver@control-plane", 3, plan.ControlPlane, "kube-apiserver"},
		{"etcd", 1, plan.ControlPlane, "etcd"},
		{"kubelet", 1, "node1", "kubelet"},
		{"containerd@node2", 2, "node2", "containerd"},
		{"proxy@node1", 2, "node1", "kube-proxy"},
	} {
		box, component, err := parseTarget(one.text, one.nodes)
		if err != nil || box != one.box || component != one.component {
			t.Errorf("%s: %s, %s, %v", one.text, box, component, err)
		}
	}
	for _, text := range []string{"kubelet", "etcd@node1", "nothing", "nothing@node1", ""} {
		if box, component, err := parseTarget(text, 2); err == nil {
			t.Errorf("%q must be refused, not %s, %s", text, box, component)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"TERM", "SIGTERM", "term"} {
		if signal, err := parseSignal(name); err != nil || signal != syscall.SIGTERM {
			t.Errorf("%s: %v, %v", name, signal, err)
		}
	}
	if _, err := parseSignal("FOO"); err == nil {
		t.Error("must be refused")
	}
}

func TestExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		1: fmt.Errorf("anything"),
		2: fmt.Errorf("up: %w", &preflight.Error{}),
		3: fmt.Errorf("%w; start it", errDown),
	} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: %d, not %d", err, got, want)
		}
	}
}

func TestWhole(t *testing.T) {
	self, err := state.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := state.Process{PID: self.PID, Started: self.Started + 1, Boot: self.Boot}
	boxes := func(node state.Process) map[string]state.Process {
		return map[string]state.Process{plan.ControlPlane: self, "node1": node}
	}
	for _, one := range []struct {
		name string
		st   *state.State
		want bool
	}{
		{"none", nil, false},
		{"all alive", &state.State{Nodes: 1, Complete: true, Boxes: boxes(self)}, true},
		{"never completed", &state.State{Nodes: 1, Boxes: boxes(self)}, false},
		{"a node died", &state.State{Nodes: 1, Complete: true, Boxes: boxes(dead)}, false},
		{"a node is halted", &state.State{Nodes: 1, Complete: true, Boxes: boxes(dead), Halted: map[string]bool{"node1": true}}, true},
		{"a node is missing", &state.State{Nodes: 2, Complete: true, Boxes: boxes(self)}, false},
	} {
		if got := whole(one.st); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
}

func TestAnotherReleaseIsRefused(t *testing.T) {
	if err := sameRelease(&state.State{Kubernetes: release.Built}); err != nil {
		t.Error(err)
	}
	err := sameRelease(&state.State{Kubernetes: "1.2"})
	if want := "the cluster runs Kubernetes 1.2, not " + release.Built; err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

func TestWhatRunsMustBeWhatIsWanted(t *testing.T) {
	st := &state.State{Kubernetes: release.Built, Runtime: containerd.One, CgroupDriver: cgroup.Cgroupfs, Nodes: 2}
	for wanted, want := range map[Wanted]string{
		{}:                                  "",
		{Nodes: 2, Runtime: containerd.One}: "",
		{Runtime: containerd.Two}:           "the cluster runs with containerd-1, not containerd-2",
		{Nodes: 3}:                          "the cluster runs with 2 nodes, not 3",
		{CgroupDriver: cgroup.Systemd}:      "the cluster runs with the cgroup driver cgroupfs, not systemd",
	} {
		got := ""
		if err := sameAsWanted(st, wanted); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, not %q", wanted, got, want)
		}
	}
}

func TestTheRuntimesOwnProgramsComeFirst(t *testing.T) {
	if got := execPath("/usr/bin", "/b/containerd-2", "/b/pitstop-cluster"); got != "/b/containerd-2:/usr/bin:/usr/sbin:/sbin:/b" {
		t.Error(got)
	}
	if got := execPath("/usr/bin", "", "/b/pitstop-cluster"); got != "/usr/bin:/usr/sbin:/sbin:/b" {
		t.Error(got)
	}
}

func TestRemoveFilesKeepsWhatIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	layout := plan.Layout{Dir: dir}
	foreign := filepath.Join(dir, "precious")
	for _, path := range []string{foreign, layout.State(), layout.PKI("ca.crt"), layout.AuditLog()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cluster{layout: layout}
	left := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	if err := c.removeFiles(true); err != nil || !slices.Equal(left(), []string{"logs", "precious"}) {
		t.Errorf("with logs kept: %v, %v", left(), err)
	}
	if err := c.removeFiles(false); err != nil || !slices.Equal(left(), []string{"precious"}) {
		t.Errorf("%v, %v", left(), err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := c.removeFiles(false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("an empty directory stays")
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if tail(path) != "" {
		t.Error("a missing log says nothing")
	}
	if err := os.WriteFile(path, []byte("1\n2\n3\n4\n5\n6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(tail(path)); !slices.Equal(got, []string{"2", "3", "4", "5", "6"}) {
		t.Errorf("%q", got)
	}
}
