package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/parts"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
)

// Kill sends a signal to a component.
func (c *Cluster) Kill(target, signalName string) error {
	signal, err := parseSignal(signalName)
	if err != nil {
		return err
	}
	control, component, err := c.target(target)
	if err != nil {
		return err
	}
	return control.Signal(component, signal)
}

// Stop ends a component and keeps it stopped.
func (c *Cluster) Stop(target, signalName string) error {
	signal, err := parseSignal(signalName)
	if err != nil {
		return err
	}
	if signal != unix.SIGKILL && signal != unix.SIGTERM {
		return fmt.Errorf("a component is stopped by KILL or TERM, not %s", signalName)
	}
	control, component, err := c.target(target)
	if err != nil {
		return err
	}
	return control.Stop(component, signal)
}

// Start starts a stopped component again.
func (c *Cluster) Start(target string) error {
	control, component, err := c.target(target)
	if err != nil {
		return err
	}
	return control.Start(component)
}

// target resolves COMPONENT[@NODE].
func (c *Cluster) target(text string) (box.Control, string, error) {
	st, err := c.running()
	if err != nil {
		return box.Control{}, "", err
	}
	boxName, component, err := parseTarget(text, st.Nodes)
	if err != nil {
		return box.Control{}, "", err
	}
	pid, err := c.boxPID(st, boxName)
	return box.Control{PID: pid}, component, err
}

// parseTarget returns the box and the full name of the component.
func parseTarget(text string, nodes int) (boxName, component string, err error) {
	short, where, given := strings.Cut(text, "@")
	if full, ok := parts.ControlPlaneComponents[short]; ok {
		if given && where != plan.ControlPlane {
			return "", "", fmt.Errorf("%s runs on the control plane, not on %s", short, where)
		}
		return plan.ControlPlane, full, nil
	}
	full, ok := parts.NodeComponents[short]
	if !ok {
		return "", "", fmt.Errorf("there is no component %q", short)
	}
	if !given {
		if nodes != 1 {
			return "", "", fmt.Errorf("which of %d nodes? say %s@node1 or so", nodes, short)
		}
		where = "node1"
	}
	return where, full, nil
}

// parseSignal accepts a name with or without SIG.
func parseSignal(name string) (syscall.Signal, error) {
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	if signal := unix.SignalNum(full); signal != 0 {
		return signal, nil
	}
	return 0, fmt.Errorf("there is no signal %q", name)
}

// Exec replaces this process by a command in all namespaces of a box.
func (c *Cluster) Exec(boxName string, command []string) error {
	st, err := c.running()
	if err != nil {
		return err
	}
	pid, err := c.boxPID(st, boxName)
	if err != nil {
		return err
	}
	path := execPath(os.Getenv("PATH"), containerd.Folder(st.Runtime, st.Program), c.program)
	// Set, not append: if a variable has two values, a program takes the first.
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	return unix.Exec(preflight.Find("nsenter"), append(enter(pid), command...), os.Environ())
}

// execPath is the PATH of a command in a box. It begins with the folder of the
// nodes' runtime, if that has one.
func execPath(path, runtime, program string) string {
	path += ":/usr/sbin:/sbin:" + filepath.Dir(program)
	if runtime != "" {
		path = runtime + ":" + path
	}
	return path
}

// enter is the command line that precedes a command to run in a box.
func enter(pid int) []string {
	return []string{"nsenter", fmt.Sprintf("--target=%d", pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
}

// Push stores an image archive under a name in the lab's registry.
func (c *Cluster) Push(ctx context.Context, archive, name string) (digest string, err error) {
	st, err := c.running()
	if err != nil {
		return "", err
	}
	scratch := filepath.Join(c.layout.Temporary(), fmt.Sprintf("push-%d", os.Getpid()))
	return c.store(st).PushArchive(ctx, archive, name, scratch)
}

// kubectlPath is the kubectl beside this program.
func kubectlPath(program string) string { return filepath.Join(filepath.Dir(program), "kubectl") }
