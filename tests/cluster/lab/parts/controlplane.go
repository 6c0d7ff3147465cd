package parts

import (
	"fmt"
	"path/filepath"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/patience"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
	"pitstop.dev/tests/pitstop-cluster/lab/release"
)

// auditPolicy records every request once, when it is answered. It records
// bodies only for writes of a node's orders.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [create, patch]
  resources: [{group: pitstop.dev, resources: [nodeworks]}]
- level: Metadata
`

// readyGate holds a component back until the API server is ready and has its
// built-in roles.
func readyGate(layout plan.Layout) *box.Gate {
	return &box.Gate{
		URL:      "https://" + plan.APIServer() + "/readyz",
		CAFile:   layout.PKI(caFile),
		Patience: patience.Of(30 * time.Second),
	}
}

// ControlPlane writes the control plane's configuration files and returns its
// box.
func ControlPlane(layout plan.Layout, program string) (box.Spec, error) {
	policy := layout.Config(plan.ControlPlane, "audit-policy.yaml")
	if err := writeFile(policy, []byte(auditPolicy)); err != nil {
		return box.Spec{}, err
	}
	self := func(name string, args ...string) box.Component {
		return box.Component{Name: name, Path: program, Args: append([]string{name}, args...)}
	}
	etcd := self("etcd",
		"--name=lab",
		"--data-dir=/var/lib/etcd",
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=lab=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // a test cluster does not outlive its machine
		"--log-level=warn",
	)
	settings := release.Of(release.Built)
	emulating := func(flags []string) []string { return append(flags, settings.Emulation()...) }
	controllerManager := self("kube-controller-manager", emulating(controllerManagerFlags(layout))...)
	controllerManager.Gate = readyGate(layout)
	scheduler := self("kube-scheduler", emulating(schedulerFlags(layout))...)
	scheduler.Gate = readyGate(layout)
	forwarder := box.Component{
		Name: "forwarder", Path: program, Listener: true,
		Args: []string{"pitstop-cluster", box.ForwardCommand, plan.APIServer()},
	}
	return box.Spec{
		Name: plan.ControlPlane,
		Keep: []string{layout.Dir, program},
		Var:  layout.Var(plan.ControlPlane),
		Logs: layout.Logs(plan.ControlPlane),
		Components: []box.Component{
			etcd,
			self("kube-apiserver", emulating(apiServerFlags(layout, policy, settings.Gates))...),
			self("registry", plan.Registry(), plan.PrivateRegistry(), layout.Registry()),
			forwarder, controllerManager, scheduler,
		},
	}, nil
}

func apiServerFlags(layout plan.Layout, auditPolicy string, gates release.Gates) []string {
	pki := layout.PKI
	return append([]string{
		"--etcd-servers=http://127.0.0.1:2379",
		// Becomes the endpoint of the Service kubernetes.
		"--advertise-address=" + plan.Gateway,
		fmt.Sprintf("--secure-port=%d", plan.APIPort),
		"--service-cluster-ip-range=" + plan.ServiceCIDR,
		"--allow-privileged",
		"--client-ca-file=" + pki(caFile),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki(saPublicFile),
		"--service-account-signing-key-file=" + pki(saKeyFile),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki(caFile),
		"--kubelet-preferred-address-types=InternalIP",
		// Without these the controller manager and the scheduler log a missing
		// authority for ever.
		"--requestheader-client-ca-file=" + pki(frontProxyFile),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		// The API server calls webhooks at their Pods' addresses, so the
		// control plane needs no kube-proxy.
		"--enable-aggregator-routing",
		"--audit-policy-file=" + auditPolicy,
		"--audit-log-path=" + layout.AuditLog(),
		"--audit-log-maxsize=200",
		"--audit-log-maxbackup=3",
	}, gates.Flags()...)
}

func controllerManagerFlags(layout plan.Layout) []string {
	kubeconfig := layout.Config(plan.ControlPlane, "controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--root-ca-file=" + layout.PKI(caFile),
		"--service-account-private-key-file=" + layout.PKI(saKeyFile),
		"--cluster-signing-cert-file=" + layout.PKI(caFile),
		"--cluster-signing-key-file=" + layout.PKI("ca.key"),
		// Each of about 45 controllers requests its own token at the start.
		// With the default of 20 a second, the default ServiceAccount would be
		// missing for 5 s.
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--flex-volume-plugin-dir=" + volumePlugins,
	}
}

func schedulerFlags(layout plan.Layout) []string {
	kubeconfig := layout.Config(plan.ControlPlane, "scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}
}

// volumePlugins replaces the default below /usr, which a box shares with the
// machine.
var volumePlugins = filepath.Join("/var/lib/kubelet", "volume-plugins")

// ControlPlaneComponents and NodeComponents map short names of the command line
// to the components of `kill`, `stop` and `start`.
var (
	ControlPlaneComponents = map[string]string{
		"etcd":                    "etcd",
		"apiserver":               "kube-apiserver",
		"kube-apiserver":          "kube-apiserver",
		"controller-manager":      "kube-controller-manager",
		"kube-controller-manager": "kube-controller-manager",
		"scheduler":               "kube-scheduler",
		"kube-scheduler":          "kube-scheduler",
		"registry":                "registry",
		"forwarder":               "forwarder",
	}
	NodeComponents = map[string]string{
		"containerd": "containerd",
		"kubelet":    "kubelet",
		"kube-proxy": "kube-proxy",
		"proxy":      "kube-proxy",
	}
)
