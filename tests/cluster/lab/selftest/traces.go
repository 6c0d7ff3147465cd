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

// traces is what a cluster could leave on the machine, as a sorted list of
// "kind what". Only what can be a cluster's own is looked at: others may work on
// the machine meanwhile.
type traces struct{ found []string }

// places outside the state directory that a node's programs would write to if
// the boxes had a hole. Those of container runtimes in general are not among
// them: another one may be at work on the machine.
var places = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/lib/etcd", "/var/log/pods", "/var/log/containers",
	"/run/pitstop-box.sock", "/etc/cni", "/etc/kubernetes", "/usr/libexec/kubernetes",
}

// settings of the whole machine that a kubelet changes.
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

// restoreSettings gives the machine its settings back.
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

// compare fails for everything that is there now and was not before. A process
// takes a moment to be gone from /proc.
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
