package parts

import (
	"strings"
	"testing"

	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/image"
)

func TestEachRuntimeIsToldTheSame(t *testing.T) {
	for _, name := range containerd.Names() {
		for driver, bySystemd := range map[string]string{cgroup.Cgroupfs: "false", cgroup.Systemd: "true"} {
			config := containerdConfig(name, driver, "/cni", "/registries")
			for _, want := range []string{
				image.PauseName, `"/usr/lib/cni"`, `conf_dir = "/cni"`, `config_path = "/registries"`,
				"restrict_oom_score_adj = true", "SystemdCgroup = " + bySystemd,
			} {
				if !strings.Contains(config, want) {
					t.Errorf("%s: no %s in\n%s", name, want, config)
				}
			}
			if strings.Contains(config, "%!") {
				t.Errorf("%s:\n%s", name, config)
			}
		}
	}
}

// containerd finds programs such as the shim by name. They must be of the same
// runtime.
func TestANodeFindsItsOwnRuntimesPrograms(t *testing.T) {
	layout, nodes := written(t)
	for name, want := range map[string]string{containerd.One: "", containerd.Two: "/bin/containerd-2"} {
		spec, err := Node(layout, nodes[0], "/bin/pitstop-cluster", name, cgroup.DefaultDriver)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Programs != want || spec.Components[0].Name != "containerd" {
			t.Errorf("%s: %+v", name, spec)
		}
	}
}
