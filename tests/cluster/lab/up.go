package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/image"
	"pitstop.dev/tests/pitstop-cluster/lab/network"
	"pitstop.dev/tests/pitstop-cluster/lab/parts"
	"pitstop.dev/tests/pitstop-cluster/lab/patience"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// startTimeout bounds a start on a machine that is busy with other things.
const startTimeout = 3 * time.Minute

// Wanted is what the user asks of a cluster.
type Wanted struct {
	// Nodes is their number; 0 means as many as run, or 1.
	Nodes int
	// Runtime is the container runtime of the nodes; "" means the one that
	// runs, or the default.
	Runtime string
	// CgroupDriver is the nodes' cgroup driver; "" means the one that runs, or
	// the default.
	CgroupDriver string
}

// Up starts the cluster unless it runs already.
func (c *Cluster) Up(ctx context.Context, wanted Wanted) error {
	planned := Wanted{
		Nodes:        max(wanted.Nodes, 1),
		Runtime:      cmp.Or(wanted.Runtime, containerd.Default),
		CgroupDriver: cmp.Or(wanted.CgroupDriver, cgroup.DefaultDriver),
	}
	if err := errors.Join(containerd.Check(planned.Runtime), cgroup.CheckDriver(planned.CgroupDriver)); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, dir := range c.others() {
		// Both would have the same control groups.
		if filepath.Base(dir) == c.layout.Name() {
			return fmt.Errorf("another cluster runs from %s; the last part of --dir must be another one, or stop it with: %s down --dir %s", dir, c.program, dir)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(startTimeout))
	defer cancel()

	st, err := state.Load(c.layout.State())
	if err != nil {
		c.report.step("the record of the last cluster cannot be read: %v", err)
	}
	if whole(st) {
		if err := sameAsWanted(st, wanted); err != nil {
			return fmt.Errorf("%w; stop it first with: %s down --dir %s", err, c.program, c.layout.Dir)
		}
		c.report.step("already up")
		return c.waitReady(ctx, st)
	}
	if err := preflight.Check(c.layout.Dir, c.program, c.pause, planned.Runtime, planned.CgroupDriver); err != nil {
		return err
	}
	port := 0
	if st != nil {
		port = st.Port
		c.report.step("cleaning up a cluster that is not whole")
	}
	if err := c.clean(st, false); err != nil {
		return err
	}
	if err := c.create(ctx, planned, port); err != nil {
		return fmt.Errorf("%w\nlogs: %s; clean up with: %s down --dir %s", err, c.layout.AllLogs(), c.program, c.layout.Dir)
	}
	c.report.step("up")
	return nil
}

// sameAsWanted fails if the running cluster differs from what the user asks.
func sameAsWanted(st *state.State, wanted Wanted) error {
	if err := sameRelease(st); err != nil {
		return err
	}
	if err := sameRuntime(st, wanted.Runtime); err != nil {
		return err
	}
	if err := sameDriver(st, wanted.CgroupDriver); err != nil {
		return err
	}
	if wanted.Nodes != 0 && wanted.Nodes != st.Nodes {
		return fmt.Errorf("the cluster runs with %d nodes, not %d", st.Nodes, wanted.Nodes)
	}
	return nil
}

// create starts a cluster where none runs.
func (c *Cluster) create(ctx context.Context, wanted Wanted, port int) error {
	nodes, err := plan.Nodes(wanted.Nodes)
	if err != nil {
		return err
	}
	listener, err := listen(port)
	if err != nil {
		return err
	}
	defer listener.Close()
	st := &state.State{
		Kubernetes:   release.Built,
		Program:      c.program,
		Runtime:      wanted.Runtime,
		CgroupDriver: wanted.CgroupDriver,
		Nodes:        wanted.Nodes,
		Port:         listener.Addr().(*net.TCPAddr).Port,
		Boxes:        map[string]state.Process{},
		Sysctls:      c.machineSysctls(),
	}
	if err := os.MkdirAll(c.layout.Dir, 0o755); err != nil {
		return err
	}
	if err := st.Save(c.layout.State()); err != nil {
		return err
	}
	if err := parts.WriteCredentials(c.layout, nodes, st.Port); err != nil {
		return err
	}
	c.report.step("keys and certificates made")

	// The images are made while the registry starts.
	images := c.makeImages()
	if err := c.startBoxes(st, nodes, listener); err != nil {
		return err
	}
	c.report.step("%d boxes started", len(st.Boxes))
	if err := c.pushImages(ctx, st, images); err != nil {
		return c.explain(st, err)
	}
	if err := c.waitReady(ctx, st); err != nil {
		return err
	}
	st.Complete = true
	return st.Save(c.layout.State())
}

// listen opens the host's socket that leads to the API server, at this port if
// that is free.
func listen(port int) (*net.TCPListener, error) {
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	listener, err := net.ListenTCP("tcp4", address)
	if err != nil && port != 0 {
		address.Port = 0
		listener, err = net.ListenTCP("tcp4", address)
	}
	return listener, err
}

// startBoxes starts the control plane and all nodes. They run side by side; a
// node's components wait for the API server by themselves.
func (c *Cluster) startBoxes(st *state.State, nodes []plan.Node, listener *net.TCPListener) error {
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	spec, err := parts.ControlPlane(c.layout, c.program)
	if err != nil {
		return err
	}
	err = c.startBox(st, spec, file, network.ControlPlane)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.startNode(st, node, nodes); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startNode(st *state.State, node plan.Node, all []plan.Node) error {
	spec, err := parts.Node(c.layout, node, c.program, st.Runtime, st.CgroupDriver)
	if err != nil {
		return err
	}
	if err := c.groups.Create(c.layout.NodeCgroup(node.Name)); err != nil {
		return err
	}
	return c.startBox(st, spec, nil, func(pid int) error {
		return network.Connect(st.Boxes[plan.ControlPlane].PID, pid, node, all)
	})
}

// startBox makes a box, records it, connects its network and runs it. Whatever
// ends this process in between, no unrecorded box stays: a box that does not
// run yet ends by itself.
func (c *Cluster) startBox(st *state.State, spec box.Spec, listener *os.File, connect func(pid int) error) error {
	for _, dir := range []string{spec.Logs, spec.Var} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	group := c.layout.BoxCgroup(spec.Name)
	if spec.Systemd {
		// The box sees no group above its own.
		group = c.layout.NodeCgroup(spec.Name)
	}
	if err := c.groups.Create(group); err != nil {
		return err
	}
	started, err := box.Start(c.layout.Dir, spec.Name, spec.Logs, listener)
	if err != nil {
		return err
	}
	err = errors.Join(
		c.groups.Join(group, started.PID),
		c.record(st, spec.Name, started.Process),
	)
	if err == nil {
		err = connect(started.PID)
	}
	if err != nil {
		started.Abandon()
		return fmt.Errorf("box %s: %w", spec.Name, err)
	}
	return started.Run(spec)
}

func (c *Cluster) record(st *state.State, name string, process state.Process) error {
	st.Boxes[name] = process
	return st.Save(c.layout.State())
}

// made holds the images of every cluster while they are made.
type made struct {
	wait   sync.WaitGroup
	images map[string]v1.Image
	err    error
}

func (c *Cluster) makeImages() *made {
	m := &made{images: map[string]v1.Image{}}
	m.wait.Go(func() {
		pause, err := image.Pause(c.pause)
		if err != nil {
			m.err = err
			return
		}
		busybox, err := image.Busybox(preflight.Find("busybox"))
		if err != nil {
			m.err = err
			return
		}
		m.images, m.err = image.Versions(busybox)
		if m.err == nil {
			m.images[image.PauseName], m.images[image.BusyboxName] = pause, busybox
		}
	})
	return m
}

func (c *Cluster) pushImages(ctx context.Context, st *state.State, m *made) error {
	m.wait.Wait()
	if m.err != nil {
		return m.err
	}
	store := c.store(st)
	for name, content := range m.images {
		// The registry may still be starting.
		err := poll(ctx, func(ctx context.Context) error { return store.Push(ctx, content, name) })
		if err != nil {
			return fmt.Errorf("push %s: %w", name, err)
		}
	}
	c.report.step("images pushed")
	return nil
}

// store is the lab's registry, reached from within the control plane's box.
func (c *Cluster) store(st *state.State) image.Store {
	dialer := network.Dialer{PID: st.Boxes[plan.ControlPlane].PID}
	return image.Store{Address: plan.Registry(), Transport: dialer.Transport()}
}
