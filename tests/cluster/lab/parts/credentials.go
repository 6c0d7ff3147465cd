// Package parts defines what runs in the boxes of a cluster: the components,
// their flags, configuration files and credentials.
package parts

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"pitstop.dev/tests/pitstop-cluster/lab/pki"
	"pitstop.dev/tests/pitstop-cluster/lab/plan"
)

// File names below the directory of keys and certificates.
const (
	caFile         = "ca.crt"
	frontProxyFile = "front-proxy-ca.crt"
	saPublicFile   = "sa.pub"
	saKeyFile      = "sa.key"
)

// WriteCredentials makes all keys, certificates and kubeconfigs of a cluster.
// port is the host's port that leads to the API server.
func WriteCredentials(layout plan.Layout, nodes []plan.Node, port int) error {
	authority, err := pki.NewAuthority("pitstop-lab")
	if err != nil {
		return err
	}
	// A separate authority vouches for requests that the API server passes on
	// to extension servers.
	frontProxy, err := pki.NewAuthority("pitstop-lab-front-proxy")
	if err != nil {
		return err
	}
	w := &writer{layout: layout, authority: authority}
	w.file(layout.PKI(caFile), authority.Certificate)
	w.file(layout.PKI("ca.key"), authority.Key)
	w.file(layout.PKI(frontProxyFile), frontProxy.Certificate)
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	w.file(layout.PKI(saKeyFile), private)
	w.file(layout.PKI(saPublicFile), public)

	w.pair("apiserver", authority, pki.Subject{
		Name: "kube-apiserver",
		DNS: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local", "localhost",
		},
		Addresses: []string{plan.Gateway, plan.ServiceAddress, "127.0.0.1"},
	})
	w.pair("apiserver-kubelet-client", authority, pki.Subject{
		Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"},
	})
	w.pair("front-proxy-client", frontProxy, pki.Subject{Name: "front-proxy-client"})

	inside := "https://" + plan.APIServer()
	config := func(box, file string) string { return layout.Config(box, file+".kubeconfig") }
	w.kubeconfig(config(plan.ControlPlane, "controller-manager"), inside, pki.Subject{Name: "system:kube-controller-manager"})
	w.kubeconfig(config(plan.ControlPlane, "scheduler"), inside, pki.Subject{Name: "system:kube-scheduler"})
	for _, node := range nodes {
		w.pair(node.Name, authority, pki.Subject{
			Name: "system:node:" + node.Name, Groups: []string{"system:nodes"},
			DNS: []string{node.Name}, Addresses: []string{node.Address},
		})
		w.kubeconfig(config(node.Name, "kubelet"), inside, pki.Subject{
			Name: "system:node:" + node.Name, Groups: []string{"system:nodes"},
		})
		w.kubeconfig(config(node.Name, "proxy"), inside, pki.Subject{Name: "system:kube-proxy"})
	}
	w.kubeconfig(layout.Kubeconfig(), fmt.Sprintf("https://127.0.0.1:%d", port), pki.Subject{
		Name: "pitstop-admin", Groups: []string{"system:masters"},
	})
	return w.err
}

// writer keeps the first error and does nothing after it.
type writer struct {
	layout    plan.Layout
	authority *pki.Authority
	err       error
}

// file writes a file that only its owner may read.
func (w *writer) file(path string, content []byte) {
	if w.err == nil {
		w.err = writeFile(path, content)
	}
}

func (w *writer) pair(name string, authority *pki.Authority, subject pki.Subject) {
	if w.err != nil {
		return
	}
	pair, err := authority.Issue(subject)
	if err != nil {
		w.err = err
		return
	}
	w.file(w.layout.PKI(name+".crt"), pair.Certificate)
	w.file(w.layout.PKI(name+".key"), pair.Key)
}

// kubeconfig writes a kubeconfig that contains its certificates.
func (w *writer) kubeconfig(path, server string, subject pki.Subject) {
	if w.err != nil {
		return
	}
	pair, err := w.authority.Issue(subject)
	if err != nil {
		w.err = err
		return
	}
	const name = "pitstop"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: w.authority.Certificate}
	config.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		w.err = err
		return
	}
	w.file(path, content)
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
