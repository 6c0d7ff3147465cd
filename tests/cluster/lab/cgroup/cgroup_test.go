package cgroup

import (
	"slices"
	"testing"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

func TestParseHybrid(t *testing.T) {
	tree := parse(hybrid)
	if tree.V2 {
		t.Error("a hybrid machine counts as v1")
	}
	if missing := tree.Missing(); missing != nil {
		t.Errorf("missing %v", missing)
	}
	want := []string{
		"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/memory",
		"/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified",
	}
	if got := tree.roots(); !slices.Equal(got, want) {
		t.Errorf("roots %v", got)
	}
	if got := tree.membership(); got != "/sys/fs/cgroup/pids" {
		t.Errorf("membership %s", got)
	}
}

func TestParseUnified(t *testing.T) {
	tree := parse("30 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
	if !tree.V2 || tree.membership() != "/sys/fs/cgroup" {
		t.Errorf("%+v", tree)
	}
}

func TestMissingControllers(t *testing.T) {
	tree := parse("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
	if got := tree.Missing(); !slices.Equal(got, []string{"cpuset", "memory", "pids"}) {
		t.Errorf("missing %v", got)
	}
}
