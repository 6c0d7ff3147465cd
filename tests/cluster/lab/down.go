package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// killTimeout is the time that a box may take to end.
const killTimeout = 20 * time.Second

// Down stops the cluster and removes all that it made. If the record is lost or
// incomplete, Down finds processes by their control group.
func (c *Cluster) Down(ctx context.Context, keepLogs bool) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := state.Load(c.layout.State())
	if err != nil {
		c.report.step("the record cannot be read: %v", err)
	}
	if err := c.clean(st, keepLogs); err != nil {
		return err
	}
	c.report.step("down")
	return nil
}

// clean ends every process of this state directory, and removes the control
// groups and files. For the last cluster, it restores the machine's settings.
func (c *Cluster) clean(st *state.State, keepLogs bool) error {
	processes := map[int]state.Process{}
	if st != nil {
		for _, process := range st.Boxes {
			processes[process.PID] = process
		}
	}
	for _, running := range c.runningBoxes() {
		if running.dir == c.layout.Dir {
			processes[running.process.PID] = running.process
		}
	}
	if err := killAll(processes); err != nil {
		return err
	}
	group := c.layout.Cgroup()
	last := len(c.others()) == 0
	if last {
		group = plan.Cgroup
	}
	if err := c.groups.Remove(group, 10*time.Second); err != nil {
		return err
	}
	// The kubelets of another cluster still need their settings.
	if st != nil && last {
		writeSysctls(st.Sysctls)
	}
	return c.removeFiles(keepLogs)
}

func killAll(processes map[int]state.Process) error {
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	for _, process := range processes {
		wait.Go(func() {
			if err := process.Kill(killTimeout); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	wait.Wait()
	return failed
}

// removeFiles removes the cluster's files, and its directory if that is then
// empty.
func (c *Cluster) removeFiles(keepLogs bool) error {
	if err := unmountBelow(c.layout.Dir); err != nil {
		return err
	}
	paths := c.layout.Owned()
	if !keepLogs {
		paths = append(paths, c.layout.AllLogs())
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(c.layout.Dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("rmdir %s: %w", c.layout.Dir, err)
	}
	return nil
}

// unmountBelow makes sure that removing files reaches no other filesystem. The
// boxes' mounts are private, so normally it unmounts nothing.
func unmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[4], err)
			}
		}
	}
	return nil
}

// sysctls are the settings that a kubelet changes for the whole machine
// (pkg/kubelet/cm, setupKernelTunables). They have no namespace, so the lab
// records and restores them.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// machineSysctls returns the settings from before the first running cluster.
func (c *Cluster) machineSysctls() map[string]string {
	for _, dir := range c.others() {
		other, err := state.Load(plan.Layout{Dir: dir}.State())
		if err == nil && other != nil {
			return other.Sysctls
		}
	}
	return readSysctls()
}

func readSysctls() map[string]string {
	values := map[string]string{}
	for _, name := range sysctls {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			values[name] = strings.TrimSpace(string(value))
		}
	}
	return values
}

func writeSysctls(values map[string]string) {
	for name, value := range values {
		_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
	}
}
