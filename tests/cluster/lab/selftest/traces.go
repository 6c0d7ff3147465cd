package selftest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
)

// traces is a sorted list, as "kind what", of what a cluster could leave on the
// machine. It covers only what can be a cluster's own, because other programs
// may work on the machine.
type traces struct{ found []string }

// places are paths outside the state directory to which a node's programs would
// write if the boxes leaked. They omit paths of container runtimes: another
// runtime may be at work on the machine.
var places = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/lib/etcd", "/var/log/pods", "/var/log/containers",
	"/run/pitstop-box.sock", "/etc/cni", "/etc/kubernetes", "/usr/libexec/kubernetes",
}

// settings are the machine-wide settings that a kubelet changes.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

func lookAround(dir string) (*traces, error) {
	t := &traces{}
	add := func(kind, what string) { t.found = append(t.found, kind+" "+what) }

	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range commands {
		text, _ := os.ReadFile(path)
		command := strings.ReplaceAll(string(text), "\x00", " ")
		// The self-test's own command line names the directory as well.
		if strings.Contains(command, dir) && path != fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			add("process", path+": "+command)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir) {
			add("mount", fields[4])
		}
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	for _, path := range groups.Leftovers(plan.Cgroup) {
		add("cgroup", path)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == plan.Bridge || strings.HasPrefix(name, "node") || strings.HasPrefix(name, "veth") {
			add("interface", name)
		}
	}
	for _, path := range places {
		if exists(path) {
			add("file", path)
		}
	}
	if exists(dir) {
		add("file", dir)
	}
	for _, name := range settings {
		value, _ := os.ReadFile("/proc/sys/" + name)
		add("setting", name+"="+strings.TrimSpace(string(value)))
	}
	slices.Sort(t.found)
	return t, nil
}

// restoreSettings restores the machine's settings.
func (t *traces) restoreSettings() error {
	for _, item := range t.found {
		if rest, ok := strings.CutPrefix(item, "setting "); ok {
			name, value, _ := strings.Cut(rest, "=")
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare fails if anything exists now that did not exist before. A process
// needs a moment to leave /proc, so compare retries.
func (t *traces) compare(dir string) error {
	var err error
	for range 20 {
		var now *traces
		if now, err = lookAround(dir); err != nil {
			return err
		}
		var left []string
		for _, item := range now.found {
			if !slices.Contains(t.found, item) {
				left = append(left, item)
			}
		}
		if len(left) == 0 {
			return nil
		}
		err = fmt.Errorf("left behind:\n           %s", strings.Join(left, "\n           "))
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
