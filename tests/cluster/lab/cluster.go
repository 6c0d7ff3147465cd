package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// Cluster is the cluster of one state directory, running or not.
type Cluster struct {
	layout plan.Layout
	// program is the path of this binary, and pause that of the pause program
	// beside it.
	program string
	pause   string
	groups  cgroup.Tree
	report  *report
}

// Open returns the cluster of a state directory. It makes and changes nothing.
func Open(dir string) (*Cluster, error) {
	layout, err := plan.NewLayout(dir)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return nil, err
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	return &Cluster{
		layout:  layout,
		program: program,
		pause:   filepath.Join(filepath.Dir(program), "pause"),
		groups:  groups,
		report:  newReport(os.Stderr),
	}, nil
}

// running loads the state, and fails if the cluster is down.
func (c *Cluster) running() (*state.State, error) {
	st, err := state.Load(c.layout.State())
	if err != nil {
		return nil, err
	}
	if st == nil || !st.Boxes[plan.ControlPlane].Alive() {
		return nil, fmt.Errorf("%w; start it with: %s up --dir %s", errDown, c.program, c.layout.Dir)
	}
	return st, nil
}

// sameRuntime fails if the nodes run another runtime than asked; "" accepts
// any.
func sameRuntime(st *state.State, asked string) error {
	if asked != "" && st.Runtime != asked {
		return fmt.Errorf("the cluster runs with %s, not %s", st.Runtime, asked)
	}
	return nil
}

// sameDriver fails if the nodes have another cgroup driver than asked; ""
// accepts any.
func sameDriver(st *state.State, asked string) error {
	if asked != "" && st.CgroupDriver != asked {
		return fmt.Errorf("the cluster runs with the cgroup driver %s, not %s", st.CgroupDriver, asked)
	}
	return nil
}

// sameRelease fails if the cluster runs another release than this program,
// which would start components of a wrong release in it.
func sameRelease(st *state.State) error {
	if st.Kubernetes != release.Built {
		return fmt.Errorf("the cluster runs Kubernetes %s, not %s", st.Kubernetes, release.Built)
	}
	return nil
}

// boxPID returns the ID of process 1 of a running box.
func (c *Cluster) boxPID(st *state.State, name string) (int, error) {
	process, known := st.Boxes[name]
	switch {
	case !known:
		return 0, fmt.Errorf("there is no %q; the cluster has %s and %d nodes, node1 and so on", name, plan.ControlPlane, st.Nodes)
	case st.Halted[name]:
		return 0, fmt.Errorf("%s is halted", name)
	case !process.Alive():
		return 0, fmt.Errorf("%s has died, see %s", name, c.layout.Logs(name))
	}
	return process.PID, nil
}

// whole says whether every box that should run does.
func whole(st *state.State) bool {
	if st == nil || !st.Complete || len(st.Boxes) != st.Nodes+1 {
		return false
	}
	for name, process := range st.Boxes {
		if !st.Halted[name] && !process.Alive() {
			return false
		}
	}
	return true
}

// found is a running box, found by the processes of the lab's control group:
// this works without any record.
type found struct {
	dir, name string
	process   state.Process
}

func (c *Cluster) runningBoxes() []found {
	var list []found
	for _, pid := range c.groups.Processes(plan.Cgroup) {
		dir, name := box.Owner(pid)
		if dir == "" {
			continue
		}
		if process, err := state.Identify(pid); err == nil {
			list = append(list, found{dir, name, process})
		}
	}
	return list
}

// others returns the state directories of other running clusters.
func (c *Cluster) others() []string {
	var dirs []string
	for _, running := range c.runningBoxes() {
		if running.dir != c.layout.Dir && !slices.Contains(dirs, running.dir) {
			dirs = append(dirs, running.dir)
		}
	}
	return dirs
}

// lock lets one command at a time change what runs on this machine. It is an
// abstract Unix socket: it ends with its process and leaves no file behind.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	waiting := false
	for {
		listener, err := net.Listen("unix", "@pitstop-cluster")
		if err == nil {
			return func() { listener.Close() }, nil
		}
		if !errors.Is(err, os.ErrExist) && !isAddressInUse(err) {
			return nil, err
		}
		if !waiting {
			waiting = true
			c.report.step("waiting for another command that starts or stops a cluster")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
