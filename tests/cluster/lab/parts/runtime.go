package parts

import (
	"fmt"
	"path/filepath"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/image"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
)

// ContainerdSocket is the runtime's socket, as seen in a node's box.
const ContainerdSocket = "/run/containerd/containerd.sock"

// containerdComponent is the containerd in folder; with "", the machine's own.
func containerdComponent(folder, config string) box.Component {
	return box.Component{
		Name: "containerd",
		Path: preflight.Find(filepath.Join(folder, "containerd")),
		Args: []string{"containerd", "--config=" + config},
	}
}

// containerdConfig is the configuration, in the version that the runtime itself
// writes. Both versions use overlayfs snapshots by default.
func containerdConfig(runtime, driver, cni, registries string) string {
	format := configVersion3
	if runtime == containerd.One {
		format = configVersion2
	}
	return fmt.Sprintf(format, image.PauseName, driver == cgroup.Systemd, preflight.CNIPlugins, cni, registries)
}

// configVersion2 is the format for containerd 1.6.
const configVersion2 = `version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # runc may not lower a process's out-of-memory score without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = %t
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q

# The default lies in /opt, which a box shares with the machine.
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
`

// configVersion3 is the format for every containerd 2.x.
const configVersion3 = `version = 3
# The default lies in /etc, which a box shares with the machine.
imports = []

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  # runc may not lower a process's out-of-memory score without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = %t
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q

[plugins."io.containerd.cri.v1.images".registry]
  config_path = %q

# The defaults lie in /opt and /etc, which a box shares with the machine.
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = "/var/lib/containerd/image-verifier"
[plugins."io.containerd.nri.v1.nri"]
  plugin_path = "/var/lib/containerd/nri/plugins"
  plugin_config_path = "/var/lib/containerd/nri/conf.d"
`

// Files of containerd for registries (containerd's docs/hosts.md): a default,
// and one for the name of the lab's registry with a password.
const (
	registriesOfAnyName = "registries/_default/hosts.toml"
	privateRegistry     = "registries/" + plan.PrivateRegistryName + "/hosts.toml"
)

// registryHosts sends all pulls to an address of the lab's registry, and to no
// other registry if the image is missing.
func registryHosts(address string) string {
	server := "http://" + address
	return fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server, server)
}
