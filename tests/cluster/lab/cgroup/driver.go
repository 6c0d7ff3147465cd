package cgroup

import (
	"fmt"
	"slices"
	"strings"
)

// Cgroup drivers, by the kubelet's names. The driver makes the groups of Pods
// and containers.
const (
	// Cgroupfs is the kubelet and the runtime themselves.
	Cgroupfs = "cgroupfs"
	// Systemd is systemd as process 1 of the node.
	Systemd = "systemd"
)

// DefaultDriver is the driver if the user names none.
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
