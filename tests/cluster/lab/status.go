package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/parts"
	"pitstop.dev/tests/pitstop-cluster/lab/patience"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// Status is what `status --json` prints. Process ids are those of the machine.
type Status struct {
	Up           bool               `json:"up"`
	Kubernetes   string             `json:"kubernetes"` // the release, such as "1.36"
	Runtime      string             `json:"runtime"`    // of the nodes, such as "containerd-2"
	Dir          string             `json:"dir"`
	Kubeconfig   string             `json:"kubeconfig"`
	Kubectl      string             `json:"kubectl"`
	ControlPlane ControlPlaneStatus `json:"controlPlane"`
	Nodes        []NodeStatus       `json:"nodes"`
}

// ControlPlaneStatus describes the control plane's box.
type ControlPlaneStatus struct {
	PID        int               `json:"pid"` // process 1 of its box
	Server     string            `json:"server"`
	Ready      bool              `json:"ready"`
	AuditLog   string            `json:"auditLog"`
	Logs       string            `json:"logs"`
	Components []ComponentStatus `json:"components"`
}

// NodeStatus describes a node's box.
type NodeStatus struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Address string `json:"address"`
	Halted  bool   `json:"halted"`
	Ready   bool   `json:"ready"`
	// ContainerdSocket is the runtime's socket as the machine sees it.
	ContainerdSocket string            `json:"containerdSocket"`
	Root             string            `json:"root"` // the node's files as the machine sees them
	Logs             string            `json:"logs"`
	Components       []ComponentStatus `json:"components"`
}

// ComponentStatus is one component.
type ComponentStatus struct {
	Name     string    `json:"name"`
	State    box.State `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
}

// Status reads the whole status; parts that it cannot reach stay empty.
func (c *Cluster) Status(ctx context.Context) (*Status, error) {
	st, err := state.Load(c.layout.State())
	if err != nil {
		return nil, err
	}
	status := &Status{Dir: c.layout.Dir, Nodes: []NodeStatus{}}
	if st == nil || !st.Boxes[plan.ControlPlane].Alive() {
		return status, nil
	}
	ready := map[string]bool{}
	apiIsReady := false
	if client, err := c.client(); err == nil {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(3*time.Second))
		defer cancel()
		apiIsReady = apiReady(ctx, client) == nil
		if list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
			for _, node := range list.Items {
				ready[node.Name] = nodeReady(&node)
			}
		}
	}
	status.Up = whole(st)
	status.Kubernetes = st.Kubernetes
	status.Runtime = st.Runtime
	status.Kubeconfig = c.layout.Kubeconfig()
	status.Kubectl = kubectlPath(st.Program)
	status.ControlPlane = ControlPlaneStatus{
		PID:        st.Boxes[plan.ControlPlane].PID,
		Server:     fmt.Sprintf("https://127.0.0.1:%d", st.Port),
		Ready:      apiIsReady,
		AuditLog:   c.layout.AuditLog(),
		Logs:       c.layout.Logs(plan.ControlPlane),
		Components: components(st.Boxes[plan.ControlPlane]),
	}
	nodes, err := plan.Nodes(st.Nodes)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		process := st.Boxes[node.Name]
		entry := NodeStatus{
			Name: node.Name, Address: node.Address, Halted: st.Halted[node.Name],
			Ready: ready[node.Name], Logs: c.layout.Logs(node.Name), Components: []ComponentStatus{},
		}
		if process.Alive() {
			entry.PID = process.PID
			entry.Root = fmt.Sprintf("/proc/%d/root", process.PID)
			entry.ContainerdSocket = entry.Root + parts.ContainerdSocket
			entry.Components = components(process)
		}
		status.Nodes = append(status.Nodes, entry)
	}
	return status, nil
}

// components asks a box, and maps its process IDs to the machine's.
func components(process state.Process) []ComponentStatus {
	list := []ComponentStatus{}
	told, err := box.Control{PID: process.PID}.Components()
	if err != nil {
		return list
	}
	pids, err := box.HostPIDs(process.PID)
	if err != nil {
		return list
	}
	for _, one := range told {
		list = append(list, ComponentStatus{Name: one.Name, State: one.State, PID: pids[one.PID], Restarts: one.Restarts})
	}
	return list
}

func (c *Cluster) printStatus(ctx context.Context, out io.Writer, asJSON bool) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(status)
	} else if status.Up {
		err = status.print(out)
	}
	if !status.Up {
		return errors.Join(err, errDown)
	}
	return err
}

// print writes a table for people.
func (s *Status) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(where, what, state string, list []ComponentStatus) {
		fmt.Fprintf(table, "%s\t%s\t%s\t\t\n", where, what, state)
		for _, one := range list {
			fmt.Fprintf(table, "  %s\t\t%s\t%s\t%s\n", one.Name, one.State, number("pid", one.PID), number("restarts", one.Restarts))
		}
	}
	row(plan.ControlPlane, s.ControlPlane.Server, readiness(s.ControlPlane.Ready, false), s.ControlPlane.Components)
	for _, node := range s.Nodes {
		row(node.Name, node.Address, readiness(node.Ready, node.Halted), node.Components)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nexport KUBECONFIG=%s\n%s get nodes\n", s.Kubeconfig, s.Kubectl)
	return err
}

func readiness(ready, halted bool) string {
	switch {
	case halted:
		return "halted"
	case ready:
		return "ready"
	default:
		return "not ready"
	}
}

func number(label string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s %d", label, n)
}
