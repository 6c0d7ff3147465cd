package box

import (
	"slices"
	"testing"
)

func TestUnwantedMounts(t *testing.T) {
	points := []string{
		"/", "/proc", "/proc/sys/fs/binfmt_misc", "/sys", "/sys/fs/cgroup/pids", "/dev", "/dev/shm",
		"/usr", "/home", "/home/me/work", "/run", "/run/netns", "/var/lib/docker/overlay2/x/merged", "/systematic",
	}
	got := unwanted(points, append(system, "/home/me/work/target/cluster"))
	want := []string{"/systematic", "/var/lib/docker/overlay2/x/merged", "/run/netns", "/run", "/proc/sys/fs/binfmt_misc"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMountPointsAreUnescaped(t *testing.T) {
	got := mountPoints("1 2 0:3 / /with\\040space rw - ext4 /dev/x rw\n\n")
	if !slices.Equal(got, []string{"/with space"}) {
		t.Errorf("got %q", got)
	}
}
