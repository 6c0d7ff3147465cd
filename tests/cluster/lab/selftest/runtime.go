package selftest

import (
	"context"
	"fmt"
	"strings"

	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
)

// nodesSayTheirRuntime expects the requested containerd, and its own ctr, on
// every node.
func nodesSayTheirRuntime(ctx context.Context, l *lab) error {
	status, err := l.status(ctx)
	if err != nil {
		return err
	}
	if status.Runtime != l.runtime {
		return fmt.Errorf("the status says %q", status.Runtime)
	}
	for _, node := range status.Nodes {
		said, err := l.kubectl(ctx, "get", "node", node.Name, "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}")
		if err != nil {
			return err
		}
		major := strings.TrimPrefix(l.runtime, "containerd-")
		version, found := strings.CutPrefix(said, "containerd://")
		if !found || !strings.HasPrefix(version, major+".") {
			return fmt.Errorf("%s runs %q, not %s", node.Name, said, l.runtime)
		}
		// Debian extends the version that ctr prints.
		text, err := l.call(ctx, "exec", node.Name, "--", "ctr", "--version")
		if err == nil && !strings.Contains(text, " "+version) {
			err = fmt.Errorf("on %s with containerd %s, ctr says %q", node.Name, version, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// volumeChecks returns the checks of image volumes, which containerd has since
// 2.1.
func (l *lab) volumeChecks() []check {
	if !kubernetes.ImageVolumes || l.runtime == containerd.One {
		return nil
	}
	return []check{{"an image is mounted as a volume", mountsAnImage}}
}

func mountsAnImage(ctx context.Context, l *lab) error {
	err := l.apply(ctx, `{apiVersion: v1, kind: Pod, metadata: {name: mounts}, spec: {
  terminationGracePeriodSeconds: 0,
  volumes: [{name: image, image: {reference: "pitstop.dev/test/busybox:2", pullPolicy: IfNotPresent}}],
  containers: [{name: main, image: "pitstop.dev/test/busybox:1", command: [sleep, "1000"],
    volumeMounts: [{name: image, mountPath: /image}]}]}}`)
	if err == nil {
		err = l.waitPod(ctx, "mounts")
	}
	if err == nil {
		err = l.exec(ctx, "mounts", "busybox", "ls", "/image/bin/busybox")
	}
	return err
}
