package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/patience"
	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// fatal marks a failure that no retry can solve.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll retries until success; when ctx ends, it returns the last failure.
func poll(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		var hopeless fatal
		if err == nil || errors.As(err, &hopeless) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// restConfig is the host's access to the cluster.
func (c *Cluster) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.layout.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit
	return config, nil
}

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = patience.Of(5 * time.Second)
	return kubernetes.NewForConfig(config)
}

// waitReady returns when a Pod can be created: the API server and all nodes
// that are not halted are ready, and the default ServiceAccount exists.
func (c *Cluster) waitReady(ctx context.Context, st *state.State) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	steps := []struct {
		what string
		done func(context.Context) error
	}{
		{"API server ready", func(ctx context.Context) error { return apiReady(ctx, client) }},
		{"nodes ready", func(ctx context.Context) error { return nodesReady(ctx, client, st) }},
		{"default ServiceAccount there", func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		}},
	}
	for _, step := range steps {
		err := poll(ctx, func(ctx context.Context) error {
			if died := deadBox(st); died != "" {
				return fatal{fmt.Errorf("%s has died", died)}
			}
			return step.done(ctx)
		})
		if err != nil {
			return c.explain(st, fmt.Errorf("waiting for %s: %w", step.what, err))
		}
		c.report.step("%s", step.what)
	}
	return nil
}

func apiReady(ctx context.Context, client *kubernetes.Clientset) error {
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func nodesReady(ctx context.Context, client *kubernetes.Clientset, st *state.State) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, node := range list.Items {
		ready[node.Name] = nodeReady(&node)
	}
	for name := range st.Boxes {
		if isNode(name) && !st.Halted[name] && !ready[name] {
			return fmt.Errorf("%s is not ready", name)
		}
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func deadBox(st *state.State) string {
	for name, process := range st.Boxes {
		if !st.Halted[name] && !process.Alive() {
			return name
		}
	}
	return ""
}

// explain adds to a failure the last log lines of components that do not run,
// or that have restarted.
func (c *Cluster) explain(st *state.State, failure error) error {
	var text strings.Builder
	for name, process := range st.Boxes {
		if st.Halted[name] {
			continue
		}
		components, err := box.Control{PID: process.PID}.Components()
		if err != nil {
			fmt.Fprintf(&text, "\n%s: %v%s", name, err, tail(filepath.Join(c.layout.Logs(name), box.LogFile)))
		}
		for _, component := range components {
			if component.State != box.Running || component.Restarts > 0 {
				fmt.Fprintf(&text, "\n%s on %s: %s, started again %d times%s", component.Name, name, component.State,
					component.Restarts, tail(filepath.Join(c.layout.Logs(name), component.Name+".log")))
			}
		}
	}
	return fmt.Errorf("%w%s", failure, text.String())
}

// tail returns the last lines of a log, indented.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	lines = lines[max(0, len(lines)-5):]
	return "\n    " + strings.Join(lines, "\n    ")
}
