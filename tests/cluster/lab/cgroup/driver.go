package cgroup

import (
	"fmt"
	"slices"
	"strings"
)

// The cgroup drivers of nodes, as the kubelet calls them: who makes the groups
// of Pods and containers.
const (
	// Cgroupfs is the kubelet and the runtime themselves.
	Cgroupfs = "cgroupfs"
	// Systemd is process 1 of the node, which is systemd then.
	Systemd = "systemd"
)

// DefaultDriver is that of nodes for which none is named.
const DefaultDriver = Cgroupfs

// Drivers lists every driver.
func Drivers() []string { return []string{Cgroupfs, Systemd} }

// CheckDriver refuses a name that no driver has.
func CheckDriver(name string) error {
	if !slices.Contains(Drivers(), name) {
		return fmt.Errorf("--cgroup-driver %s: there is no such driver, only %s", name, strings.Join(Drivers(), ", "))
	}
	return nil
}
