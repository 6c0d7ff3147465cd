package lab

import (
	"context"
	"fmt"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

func isNode(name string) bool { return name != plan.ControlPlane }

// node finds a node of a running cluster by its name.
func (c *Cluster) node(st *state.State, name string) (plan.Node, []plan.Node, error) {
	nodes, err := plan.Nodes(st.Nodes)
	if err != nil {
		return plan.Node{}, nil, err
	}
	for _, node := range nodes {
		if node.Name == name {
			return node, nodes, nil
		}
	}
	return plan.Node{}, nil, fmt.Errorf("there is no node %q; the cluster has node1 to node%d", name, st.Nodes)
}

// Halt crashes a node: it kills process 1, and so all processes, mounts and
// interfaces. The disk stays.
func (c *Cluster) Halt(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := c.running()
	if err != nil {
		return err
	}
	if _, _, err := c.node(st, name); err != nil {
		return err
	}
	if st.Halted == nil {
		st.Halted = map[string]bool{}
	}
	// Record first: a cluster with a halted node does not count as broken.
	st.Halted[name] = true
	if err := st.Save(c.layout.State()); err != nil {
		return err
	}
	if err := st.Boxes[name].Kill(killTimeout); err != nil {
		return err
	}
	for _, group := range []string{c.layout.NodeCgroup(name), c.layout.BoxCgroup(name)} {
		if err := c.groups.Remove(group, 10*time.Second); err != nil {
			return err
		}
	}
	c.report.step("%s halted", name)
	return nil
}

// Boot starts a halted node with its old disk.
func (c *Cluster) Boot(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := c.running()
	if err != nil {
		return err
	}
	node, all, err := c.node(st, name)
	if err != nil {
		return err
	}
	if err := sameRelease(st); err != nil {
		return fmt.Errorf("%w; boot it with: %s boot --dir %s %s", err, st.Program, c.layout.Dir, name)
	}
	if st.Boxes[name].Alive() {
		return fmt.Errorf("%s runs already", name)
	}
	if err := c.startNode(st, node, all); err != nil {
		return err
	}
	delete(st.Halted, name)
	if err := st.Save(c.layout.State()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := poll(ctx, func(context.Context) error {
		_, err := box.Control{PID: st.Boxes[name].PID}.Components()
		return err
	}); err != nil {
		return c.explain(st, err)
	}
	c.report.step("%s booted", name)
	return nil
}
