package parts

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
)

func written(t *testing.T) (plan.Layout, []plan.Node) {
	t.Helper()
	layout := plan.Layout{Dir: t.TempDir()}
	nodes, err := plan.Nodes(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteCredentials(layout, nodes, 4711); err != nil {
		t.Fatal(err)
	}
	return layout, nodes
}

func TestKubeconfigStandsAlone(t *testing.T) {
	layout, _ := written(t)
	config, err := clientcmd.BuildConfigFromFlags("", layout.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:4711" || config.CAFile != "" || config.CertFile != "" {
		t.Errorf("%s, files %q %q", config.Host, config.CAFile, config.CertFile)
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Error(err)
	}
}

func TestKeysAreTheOwnersOnly(t *testing.T) {
	layout, _ := written(t)
	err := filepath.WalkDir(layout.Dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every file in a component's flags must exist, except files that the component
// makes.
func TestFlagsNameFilesThatExist(t *testing.T) {
	layout, nodes := written(t)
	specs := []box.Spec{}
	spec, err := ControlPlane(layout, "/program")
	if err != nil {
		t.Fatal(err)
	}
	specs = append(specs, spec)
	for _, node := range nodes {
		spec, err := Node(layout, node, "/program", containerd.Default, cgroup.DefaultDriver)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	for _, spec := range specs {
		for _, component := range spec.Components {
			for _, arg := range component.Args {
				_, path, ok := strings.Cut(arg, "="+layout.Dir)
				if !ok || strings.HasPrefix(arg, "--audit-log-path") {
					continue
				}
				if _, err := os.Stat(layout.Dir + path); err != nil {
					t.Errorf("%s %s: %v", component.Name, arg, err)
				}
			}
		}
	}
}

func TestNodesDifferOnlyWhereTheyMust(t *testing.T) {
	layout, nodes := written(t)
	for _, node := range nodes {
		if _, err := Node(layout, node, "/program", containerd.Default, cgroup.DefaultDriver); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(layout.Config(node.Name, "kubelet.json"))
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := json.Unmarshal(content, &config); err != nil {
			t.Fatal(err)
		}
		if config["cgroupRoot"] != "/"+layout.NodeCgroup(node.Name) {
			t.Errorf("%s: cgroupRoot %v", node.Name, config["cgroupRoot"])
		}
	}
}

func TestThePodsOfANodeAreInItsOwnGroups(t *testing.T) {
	layout, nodes := written(t)
	for driver, want := range map[string]string{
		cgroup.Cgroupfs: "/" + layout.NodeCgroup(nodes[0].Name),
		cgroup.Systemd:  "/",
	} {
		config := kubeletConfig(layout, nodes[0], driver, nil)
		if config["cgroupDriver"] != driver || config["cgroupRoot"] != want {
			t.Errorf("%s: %v %v", driver, config["cgroupDriver"], config["cgroupRoot"])
		}
		spec, err := Node(layout, nodes[0], "/p", containerd.Default, driver)
		if err != nil || spec.Systemd != (driver == cgroup.Systemd) {
			t.Errorf("%s: %v %v", driver, spec.Systemd, err)
		}
	}
}

func TestEveryNameOfAComponentExists(t *testing.T) {
	layout, nodes := written(t)
	names := func(spec box.Spec, err error) []string {
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, component := range spec.Components {
			list = append(list, component.Name)
		}
		return list
	}
	control, node := names(ControlPlane(layout, "/p")), names(Node(layout, nodes[0], "/p", containerd.Default, cgroup.DefaultDriver))
	for short, full := range ControlPlaneComponents {
		if !slices.Contains(control, full) {
			t.Errorf("%s: no component %s", short, full)
		}
	}
	for short, full := range NodeComponents {
		if !slices.Contains(node, full) {
			t.Errorf("%s: no component %s", short, full)
		}
	}
}

func TestNothingIsEnabledThatIsNotByItself(t *testing.T) {
	layout, nodes := written(t)
	control, err := ControlPlane(layout, "/p")
	if err != nil {
		t.Fatal(err)
	}
	node, err := Node(layout, nodes[0], "/p", containerd.Default, cgroup.DefaultDriver)
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range append(control.Components, node.Components...) {
		for _, arg := range component.Args {
			on := strings.Contains(arg, "feature-gates") && !strings.HasSuffix(arg, "=false")
			if on || strings.Contains(arg, "runtime-config") {
				t.Errorf("%s %s", component.Name, arg)
			}
		}
	}
	if on := gatesOfKubelet(t, layout, nodes[0]); slices.Contains(slices.Collect(maps.Values(on)), true) {
		t.Errorf("kubelet: %v", on)
	}
}

// The API server and the kubelets must get the same gates.
func TestGatesReachApiServerAndKubelets(t *testing.T) {
	layout, nodes := written(t)
	some := release.Gates{"Some": false}
	if flags := apiServerFlags(layout, "/policy", some); !slices.Contains(flags, "--feature-gates=Some=false") {
		t.Errorf("API server: %v", flags)
	}
	if got, ok := kubeletConfig(layout, nodes[0], cgroup.DefaultDriver, some)["featureGates"].(release.Gates); !ok || !maps.Equal(got, some) {
		t.Errorf("kubelet: %v", got)
	}

	want := release.Of(release.Built).Gates
	control, err := ControlPlane(layout, "/p")
	if err != nil {
		t.Fatal(err)
	}
	api := control.Components[slices.IndexFunc(control.Components, func(one box.Component) bool {
		return one.Name == "kube-apiserver"
	})]
	for _, flag := range want.Flags() {
		if !slices.Contains(api.Args, flag) {
			t.Errorf("the API server of %s has no %s", release.Built, flag)
		}
	}
	if _, err := Node(layout, nodes[0], "/p", containerd.Default, cgroup.DefaultDriver); err != nil {
		t.Fatal(err)
	}
	if got := gatesOfKubelet(t, layout, nodes[0]); !maps.Equal(got, want) {
		t.Errorf("kubelet: %v, not %v", got, want)
	}
}

func gatesOfKubelet(t *testing.T, layout plan.Layout, node plan.Node) release.Gates {
	t.Helper()
	content, err := os.ReadFile(layout.Config(node.Name, "kubelet.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ FeatureGates release.Gates }
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	return config.FeatureGates
}
