package parts

import (
	"encoding/json"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
)

// object is a configuration file as JSON, which YAML readers accept.
type object map[string]any

// Node writes a node's configuration files and returns its box.
func Node(layout plan.Layout, node plan.Node, program, runtime, driver string) (box.Spec, error) {
	config := func(file string) string { return layout.Config(node.Name, file) }
	files := map[string]any{
		config("kubelet.json"):      kubeletConfig(layout, node, driver, release.Of(release.Built).Gates),
		config("proxy.json"):        proxyConfig(layout, node),
		config("cni/lab.conflist"):  cniConfig(node),
		config("containerd.toml"):   containerdConfig(runtime, driver, config("cni"), config("registries")),
		config(registriesOfAnyName): registryHosts(plan.Registry()),
		config(privateRegistry):     registryHosts(plan.PrivateRegistry()),
	}
	for path, content := range files {
		if err := writeConfig(path, content); err != nil {
			return box.Spec{}, err
		}
	}
	kubelet := box.Component{Name: "kubelet", Path: program, Gate: readyGate(layout), Args: []string{
		"kubelet",
		"--config=" + config("kubelet.json"),
		"--kubeconfig=" + config("kubelet.kubeconfig"),
		"--hostname-override=" + node.Name,
		"--node-ip=" + node.Address,
	}}
	proxy := box.Component{Name: "kube-proxy", Path: program, Gate: readyGate(layout), Args: []string{
		"kube-proxy",
		"--config=" + config("proxy.json"),
	}}
	programs := containerd.Folder(runtime, program)
	return box.Spec{
		Name:     node.Name,
		Keep:     []string{layout.Dir, program, programs},
		Var:      layout.Var(node.Name),
		Logs:     layout.Logs(node.Name),
		Programs: programs,
		// A node forwards packets between its Pods and others.
		Sysctls:    map[string]string{"net/ipv4/ip_forward": "1"},
		Systemd:    driver == cgroup.Systemd,
		Components: []box.Component{containerdComponent(programs, config("containerd.toml")), kubelet, proxy},
	}, nil
}

func writeConfig(path string, content any) error {
	if text, ok := content.(string); ok {
		return writeFile(path, []byte(text))
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(text, '\n'))
}

func kubeletConfig(layout plan.Layout, node plan.Node, driver string, gates release.Gates) object {
	root := "/" + layout.NodeCgroup(node.Name)
	if driver == cgroup.Systemd {
		// The node has a cgroup namespace, and sees no group above its own.
		root = "/"
	}
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": object{
			"x509":      object{"clientCAFile": layout.PKI(caFile)},
			"webhook":   object{"enabled": true},
			"anonymous": object{"enabled": false},
		},
		"authorization":            object{"mode": "Webhook"},
		"tlsCertFile":              layout.PKI(node.Name + ".crt"),
		"tlsPrivateKeyFile":        layout.PKI(node.Name + ".key"),
		"containerRuntimeEndpoint": "unix://" + ContainerdSocket,
		"cgroupDriver":             driver,
		"cgroupRoot":               root,
		// Since 1.35, a kubelet refuses cgroup v1 by default.
		"failCgroupV1": false,
		"failSwapOn":   false,
		// The machine's resolver cannot be reached from a box.
		"resolvConf": "",
		// Nothing answers at this address. Without an address, a kubelet
		// records an event at each sync of a Pod.
		"clusterDNS":    []string{plan.ClusterDNS},
		"clusterDomain": "cluster.local",
		// Lowering it needs a capability that a container's root lacks.
		"oomScoreAdj": 0,
		// A full disk of the machine must not evict test pods.
		"evictionHard":                object{"memory.available": "50Mi"},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"nodeStatusUpdateFrequency":   "5s",
		"volumePluginDir":             volumePlugins,
		"featureGates":                gates,
	}
}

func proxyConfig(layout plan.Layout, node plan.Node) object {
	return object{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"clusterCIDR":      plan.PodCIDR,
		"hostnameOverride": node.Name,
		"oomScoreAdj":      0,
		"clientConnection": object{"kubeconfig": layout.Config(node.Name, "proxy.kubeconfig")},
		// kube-proxy would write these to settings that only the first network
		// namespace has. Zero leaves the settings alone.
		"conntrack": object{
			"maxPerCore": 0, "min": 0,
			"tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
}

// cniConfig routes every packet of a Pod through its node. So even Service
// traffic between Pods of one node passes kube-proxy's rules, without
// br_netfilter.
func cniConfig(node plan.Node) object {
	return object{
		"cniVersion": "0.4.0",
		"name":       "lab",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": false,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": node.PodCIDR}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
}
