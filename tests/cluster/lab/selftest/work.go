package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// workloads are a web server on each node, behind one Service.
const workloads = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
` + webPod

// webPod is a Pod that serves its own name; NAME stands for node1 or node2.
const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web-NAME, labels: {app: web}}
spec:
  nodeName: NAME
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: pitstop.dev/test/busybox:1
    command: [sh, -c, "echo serving; hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}
    readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
`

var nodes = []string{"node1", "node2"}

// workChecks use the cluster as tests do.
var workChecks = []check{
	{"status shows both nodes ready", func(ctx context.Context, l *lab) error {
		status, err := l.status(ctx)
		if err != nil {
			return err
		}
		if len(status.Nodes) != 2 || !status.ControlPlane.Ready || !status.Nodes[0].Ready || !status.Nodes[1].Ready {
			return fmt.Errorf("%+v", status)
		}
		return nil
	}},
	{"both nodes run the runtime that was asked for", nodesSayTheirRuntime},
	{"pods run on both nodes, their image pulled from the lab's registry", func(ctx context.Context, l *lab) error {
		l.containers = map[string]string{}
		for _, node := range nodes {
			if err := l.apply(ctx, strings.ReplaceAll(workloads, "NAME", node)); err != nil {
				return err
			}
		}
		for _, node := range nodes {
			if err := l.waitPod(ctx, "web-"+node); err != nil {
				return err
			}
			pod, err := l.pod(ctx, "web-"+node)
			if err != nil {
				return err
			}
			l.containers[pod.Name] = pod.Status.ContainerStatuses[0].ContainerID
		}
		return nil
	}},
	{"logs", func(ctx context.Context, l *lab) error {
		text, err := l.kubectl(ctx, "logs", "web-node1")
		if err == nil && strings.TrimSpace(text) != "serving" {
			err = fmt.Errorf("got %q", text)
		}
		return err
	}},
	{"exec", func(ctx context.Context, l *lab) error { return l.exec(ctx, "web-node2", "web-node2", "hostname") }},
	{"pods reach each other and the Service from both nodes", func(ctx context.Context, l *lab) error {
		address, err := l.kubectl(ctx, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		if err != nil {
			return err
		}
		for _, from := range nodes {
			// The Service chooses a Pod by chance: ask until both have
			// answered.
			for _, to := range nodes {
				if err := l.exec(ctx, "web-"+from, "web-"+to, "timeout", "3", "wget", "-qO-", "http://"+address+"/"); err != nil {
					return fmt.Errorf("Service, from %s to %s: %w", from, to, err)
				}
				pod, err := l.pod(ctx, "web-"+to)
				if err != nil {
					return err
				}
				if err := l.exec(ctx, "web-"+from, "web-"+to, "timeout", "3", "wget", "-qO-", "http://"+pod.Status.PodIP+":8080/"); err != nil {
					return fmt.Errorf("from %s to %s: %w", from, to, err)
				}
			}
		}
		return nil
	}},
	{"a pod reaches the API server by its Service address", func(ctx context.Context, l *lab) error {
		return l.exec(ctx, "web-node1", "open", "sh", "-c", "nc -w 2 10.96.0.1 443 </dev/null && echo open")
	}},
	{"a node's runtime is reached from the host and by exec", func(ctx context.Context, l *lab) error {
		status, err := l.status(ctx)
		if err != nil {
			return err
		}
		conn, err := net.Dial("unix", status.Nodes[1].ContainerdSocket)
		if err != nil {
			return err
		}
		conn.Close()
		text, err := l.call(ctx, "exec", "node2", "--", "ctr", "--namespace", "k8s.io", "containers", "list", "-q")
		if id := strings.TrimPrefix(l.containers["web-node2"], "containerd://"); err == nil && !strings.Contains(text, id) {
			err = fmt.Errorf("container %s is not in %q", id, text)
		}
		return err
	}},
	{"an image that was pushed runs under a foreign registry's name", func(ctx context.Context, l *lab) error {
		return l.pushAndRun(ctx, "registry.example/team/tool:7", "pushed")
	}},
	resizeCheck(),
	{"the audit log names who made a pod", func(ctx context.Context, l *lab) error {
		status, err := l.status(ctx)
		if err != nil {
			return err
		}
		return eventually(ctx, 5*time.Second, func() error {
			text, err := os.ReadFile(status.ControlPlane.AuditLog)
			if err != nil {
				return err
			}
			for _, line := range strings.Split(string(text), "\n") {
				if strings.Contains(line, `"verb":"create"`) && strings.Contains(line, `"name":"web-node1"`) && strings.Contains(line, `"username":"pitstop-admin"`) {
					return nil
				}
			}
			return errors.New("no such line")
		})
	}},
	policyCheck(),
	{"a killed kubelet comes back, containers live on", func(ctx context.Context, l *lab) error {
		return l.survive(ctx, "node1", "kubelet", "kubelet@node1")
	}},
	{"a killed containerd comes back, containers live on", func(ctx context.Context, l *lab) error {
		return l.survive(ctx, "node1", "containerd", "containerd@node1")
	}},
	{"a killed kube-proxy comes back", func(ctx context.Context, l *lab) error {
		return l.survive(ctx, "node1", "kube-proxy", "kube-proxy@node1")
	}},
	{"a killed API server comes back at the same address", func(ctx context.Context, l *lab) error {
		return l.survive(ctx, "control-plane", "kube-apiserver", "apiserver")
	}},
	{"a killed etcd comes back", func(ctx context.Context, l *lab) error {
		return l.survive(ctx, "control-plane", "etcd", "etcd")
	}},
	{"a killed registry comes back with its images", func(ctx context.Context, l *lab) error {
		if err := l.survive(ctx, "control-plane", "registry", "registry"); err != nil {
			return err
		}
		return l.run(ctx, "registry.example/team/tool:7", "pushed-again", "node2")
	}},
	{"a stopped containerd stays away until it is started", func(ctx context.Context, l *lab) error {
		if _, err := l.call(ctx, "stop", "containerd@node1"); err != nil {
			return err
		}
		time.Sleep(time.Second)
		if one, err := l.component(ctx, "node1", "containerd"); err != nil || one.State != "stopped" || one.PID != 0 {
			return fmt.Errorf("%+v, %w", one, err)
		}
		if _, err := l.call(ctx, "start", "containerd@node1"); err != nil {
			return err
		}
		return errors.Join(l.exec(ctx, "web-node1", "web-node1", "hostname"), l.sameContainer(ctx, "web-node1"))
	}},
	{"a stopped API server stays away until it is started", func(ctx context.Context, l *lab) error {
		if _, err := l.call(ctx, "stop", "apiserver"); err != nil {
			return err
		}
		if _, err := l.kubectl(ctx, "get", "--raw", "/readyz"); err == nil {
			return errors.New("it still answers")
		}
		if _, err := l.call(ctx, "start", "apiserver"); err != nil {
			return err
		}
		return eventually(ctx, 30*time.Second, func() error {
			_, err := l.kubectl(ctx, "get", "--raw", "/readyz")
			return err
		})
	}},
	{"a node crashes and boots: same pod, container started again", func(ctx context.Context, l *lab) error {
		was, err := l.pod(ctx, "web-node2")
		if err != nil {
			return err
		}
		if _, err := l.call(ctx, "halt", "node2"); err != nil {
			return err
		}
		if _, err := l.call(ctx, "exec", "node2", "--", "true"); err == nil {
			return errors.New("a halted node ran a command")
		}
		if _, err := l.call(ctx, "boot", "node2"); err != nil {
			return err
		}
		if err := eventually(ctx, 60*time.Second, func() error {
			is, err := l.pod(ctx, "web-node2")
			if err == nil && (is.UID != was.UID || is.Status.ContainerStatuses[0].RestartCount != 1 || !is.Status.ContainerStatuses[0].Ready) {
				err = fmt.Errorf("%s, %+v", is.UID, is.Status.ContainerStatuses)
			}
			return err
		}); err != nil {
			return err
		}
		return l.exec(ctx, "web-node1", "web-node2", "timeout", "3", "wget", "-qO-", "http://"+mustIP(ctx, l, "web-node2")+":8080/")
	}},
	{"a running node reboots in one command", func(ctx context.Context, l *lab) error {
		if _, err := l.call(ctx, "reboot", "node2"); err != nil {
			return err
		}
		return l.exec(ctx, "web-node2", "web-node2", "hostname")
	}},
}

func mustIP(ctx context.Context, l *lab, name string) string {
	if pod, err := l.pod(ctx, name); err == nil {
		return pod.Status.PodIP
	}
	return "none"
}

// survive kills a component and expects it back as another process. Afterwards
// exec reaches the Pod on node1, in the same container.
func (l *lab) survive(ctx context.Context, where, name, target string) error {
	was, err := l.component(ctx, where, name)
	if err != nil {
		return err
	}
	if _, err := l.call(ctx, "kill", target); err != nil {
		return err
	}
	if err := eventually(ctx, 30*time.Second, func() error {
		is, err := l.component(ctx, where, name)
		if err == nil && (is.PID == 0 || is.PID == was.PID || is.Restarts <= was.Restarts) {
			err = fmt.Errorf("%+v", is)
		}
		return err
	}); err != nil {
		return err
	}
	return errors.Join(
		eventually(ctx, 30*time.Second, func() error {
			_, err := l.kubectl(ctx, "get", "--raw", "/readyz")
			return err
		}),
		l.exec(ctx, "web-node1", "web-node1", "hostname"),
		l.sameContainer(ctx, "web-node1"),
	)
}

// pushAndRun packs an image as other tools would, pushes it and runs it.
func (l *lab) pushAndRun(ctx context.Context, image, pod string) error {
	scratch, err := os.MkdirTemp("", "pitstop-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	archive := filepath.Join(scratch, "image.tar")
	if err := packImage(archive, filepath.Join(scratch, "layout")); err != nil {
		return err
	}
	digest, err := l.call(ctx, "push", archive, image)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(digest, "sha256:") {
		return fmt.Errorf("push printed %q", digest)
	}
	return l.run(ctx, image, pod, "node1")
}

// run starts a pod from an image that was pushed.
func (l *lab) run(ctx context.Context, image, pod, node string) error {
	_, err := l.kubectl(ctx, "run", pod, "--image="+image, "--restart=Never",
		`--overrides={"spec":{"nodeName":"`+node+`","terminationGracePeriodSeconds":1}}`, "--", "sleep", "1000")
	return errors.Join(err, l.waitPod(ctx, pod))
}
