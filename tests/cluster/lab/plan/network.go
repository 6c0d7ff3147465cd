// Package plan computes the addresses and file paths of a cluster. It changes
// nothing.
package plan

import "fmt"

// The addresses of a cluster. They exist only in its own network namespaces, so
// they cannot clash with any on the machine.
const (
	// ControlPlane is the name of the box that runs the control plane.
	ControlPlane = "control-plane"
	// Bridge is the bridge in the control plane's box to which every node is
	// connected.
	Bridge = "lab0"
	// Gateway is the control plane's own address on the bridge.
	Gateway = "10.90.0.1"
	// LinkBits is the prefix length of the network on the bridge.
	LinkBits = 24
	// PodCIDR spans the pods of all nodes.
	PodCIDR = "10.244.0.0/16"
	// ServiceCIDR is the range of Service addresses.
	ServiceCIDR = "10.96.0.0/16"
	// ServiceAddress is the Service address of the API server, the first of
	// the range.
	ServiceAddress = "10.96.0.1"
	// ClusterDNS is the DNS server address that Pods get.
	ClusterDNS = "10.96.0.10"
	// APIPort is where the API server listens.
	APIPort = 6443
	// RegistryPort is where the image registry listens.
	RegistryPort = 5000
	// PrivateRegistryPort is the registry's port that requires its password.
	PrivateRegistryPort = 5001
	// PrivateRegistryName begins the names of images that nodes pull from that
	// port.
	PrivateRegistryName = "private.pitstop.dev"
	// MaxNodes is the most nodes that the address plan allows.
	MaxNodes = 200
)

// Node is one node's place in the network.
type Node struct {
	// Index counts from 1.
	Index int
	// Name is the name of the node and of its box.
	Name string
	// Address is the node's own address.
	Address string
	// PodCIDR holds the addresses of the node's pods.
	PodCIDR string
	// MAC stays the same when the node boots again, so that no neighbour
	// remembers a wrong one.
	MAC string
}

// Nodes returns the first n nodes.
func Nodes(n int) ([]Node, error) {
	if n < 1 || n > MaxNodes {
		return nil, fmt.Errorf("a cluster has 1 to %d nodes, not %d", MaxNodes, n)
	}
	nodes := make([]Node, n)
	for i := range nodes {
		index := i + 1
		nodes[i] = Node{
			Index:   index,
			Name:    fmt.Sprintf("node%d", index),
			Address: fmt.Sprintf("10.90.0.%d", 10+index),
			PodCIDR: fmt.Sprintf("10.244.%d.0/24", index),
			MAC:     fmt.Sprintf("02:90:00:00:00:%02x", index),
		}
	}
	return nodes, nil
}

// APIServer is the API server's address as host and port, seen from any box.
func APIServer() string { return fmt.Sprintf("%s:%d", Gateway, APIPort) }

// Registry is the registry's address as host and port, seen from any box.
func Registry() string { return fmt.Sprintf("%s:%d", Gateway, RegistryPort) }

// PrivateRegistry is the registry's address that requires the password.
func PrivateRegistry() string { return fmt.Sprintf("%s:%d", Gateway, PrivateRegistryPort) }
