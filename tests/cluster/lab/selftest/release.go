package selftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/release"
)

// kubernetes holds the settings of this program's release.
var kubernetes = release.Of(release.Built)

// resizeCheck expects that pods/resize works, or is not served.
func resizeCheck() check {
	if kubernetes.Resizes() {
		return check{"a resize reaches the running container", resized}
	}
	return check{"no resize is served, and container statuses have no resources", notResizable}
}

func resized(ctx context.Context, l *lab) error {
	_, err := l.kubectl(ctx, "patch", "pod", "web-node1", "--subresource=resize", "--patch",
		`{"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":"300m","memory":"96Mi"}}}]}}`)
	if err != nil {
		return err
	}
	err = eventually(ctx, 20*time.Second, func() error {
		pod, err := l.pod(ctx, "web-node1")
		if err == nil && pod.Status.ContainerStatuses[0].Resources.Limits.Memory().String() != "96Mi" {
			err = fmt.Errorf("status says %v", pod.Status.ContainerStatuses[0].Resources)
		}
		return err
	})
	return errors.Join(err, l.sameContainer(ctx, "web-node1"))
}

func notResizable(ctx context.Context, l *lab) error {
	served, err := l.kubectl(ctx, "get", "--raw", "/api/v1")
	if err == nil && strings.Contains(served, "pods/resize") {
		err = errors.New("pods/resize is served")
	}
	if err != nil {
		return err
	}
	pod, err := l.pod(ctx, "web-node1")
	if err == nil && pod.Status.ContainerStatuses[0].Resources != nil {
		err = fmt.Errorf("status says %v", pod.Status.ContainerStatuses[0].Resources)
	}
	return err
}

// policyCheck expects the kinds of admission policies that the release has.
func policyCheck() check {
	kinds, name := []string{"validatingadmissionpolicies"}, "validating"
	if kubernetes.Mutating {
		kinds, name = append(kinds, "mutatingadmissionpolicies"), "mutating and validating"
	}
	return check{name + " admission policies are served, nothing alpha is", func(ctx context.Context, l *lab) error {
		text, err := l.kubectl(ctx, "api-versions")
		if err == nil && strings.Contains(text, "alpha") {
			err = fmt.Errorf("alpha versions in %q", text)
		}
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if _, err := l.kubectl(ctx, "get", kind+".v1.admissionregistration.k8s.io"); err != nil {
				return err
			}
		}
		return nil
	}}
}
