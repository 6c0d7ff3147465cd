package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	cluster "pitstop.dev/tests/pitstop-cluster/lab"
)

// lab is the cluster under test and what the checks remember.
type lab struct {
	program, dir, kubeconfig string
	runtime                  string // the container runtime of its nodes
	before                   *traces
	containers               map[string]string // IDs by Pod
}

// up starts the cluster.
func (l *lab) up(ctx context.Context, args ...string) (string, error) {
	return l.call(ctx, append([]string{"up", "--runtime", l.runtime}, args...)...)
}

// call runs this program and returns its standard output.
func (l *lab) call(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, l.program, append(args[:1:1], append([]string{"--dir", l.dir}, args[1:]...)...)...))
}

// kubectl runs kubectl, with its cache in the cluster's directory.
func (l *lab) kubectl(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(l.program), "kubectl"),
		append([]string{"--kubeconfig", l.kubeconfig, "--cache-dir", filepath.Join(l.dir, "tmp", "kubectl")}, args...)...)
	return output(command)
}

// apply creates objects from YAML.
func (l *lab) apply(ctx context.Context, yaml string) error {
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(l.program), "kubectl"),
		"--kubeconfig", l.kubeconfig, "--cache-dir", filepath.Join(l.dir, "tmp", "kubectl"), "apply", "-f", "-")
	command.Stdin = strings.NewReader(yaml)
	_, err := output(command)
	return err
}

func output(command *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (l *lab) status(ctx context.Context) (*cluster.Status, error) {
	text, err := l.call(ctx, "status", "--json")
	if err != nil {
		return nil, err
	}
	status := &cluster.Status{}
	return status, json.Unmarshal([]byte(text), status)
}

// component finds one component in the status.
func (l *lab) component(ctx context.Context, where, name string) (cluster.ComponentStatus, error) {
	status, err := l.status(ctx)
	if err != nil {
		return cluster.ComponentStatus{}, err
	}
	list := status.ControlPlane.Components
	for _, node := range status.Nodes {
		if node.Name == where {
			list = node.Components
		}
	}
	for _, one := range list {
		if one.Name == name {
			return one, nil
		}
	}
	return cluster.ComponentStatus{}, fmt.Errorf("no %s on %s", name, where)
}

func (l *lab) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	text, err := l.kubectl(ctx, "get", "pod", name, "-o", "json")
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal([]byte(text), pod)
}

func (l *lab) waitPod(ctx context.Context, name string) error {
	_, err := l.kubectl(ctx, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	return err
}

// exec repeats a command in a Pod until its output contains want.
func (l *lab) exec(ctx context.Context, pod, want string, words ...string) error {
	return eventually(ctx, 20*time.Second, func() error {
		text, err := l.kubectl(ctx, append([]string{"exec", pod, "--"}, words...)...)
		if err == nil && !strings.Contains(text, want) {
			err = fmt.Errorf("got %q, not %q", text, want)
		}
		return err
	})
}

// sameContainer fails when a Pod's container is not the remembered one.
func (l *lab) sameContainer(ctx context.Context, name string) error {
	pod, err := l.pod(ctx, name)
	if err != nil {
		return err
	}
	if got := pod.Status.ContainerStatuses[0].ContainerID; got != l.containers[name] {
		return fmt.Errorf("%s runs in %s, no longer in %s", name, got, l.containers[name])
	}
	return nil
}

// eventually tries until it succeeds or time is up.
func eventually(ctx context.Context, patience time.Duration, try func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
