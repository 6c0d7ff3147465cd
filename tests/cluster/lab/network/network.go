// Package network connects the boxes of a cluster: a bridge in the control
// plane's box, and a virtual cable from each node. The machine's own network
// namespace holds none of them, so nothing leaves and nothing clashes.
package network

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"pitstop.dev/tests/pitstop-cluster/lab/plan"
)

// space is one box's network, opened through its process 1.
type space struct {
	*netlink.Handle
	ns netns.NsHandle
}

func open(pid int) (*space, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	return &space{Handle: handle, ns: ns}, nil
}

func (s *space) close() {
	s.Handle.Close()
	s.ns.Close()
}

// ControlPlane makes the bridge in the control plane's box.
func ControlPlane(pid int) error {
	box, err := open(pid)
	if err != nil {
		return err
	}
	defer box.close()
	if err := box.up("lo"); err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = plan.Bridge
	if err := box.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return fmt.Errorf("bridge %s: %w", plan.Bridge, err)
	}
	return box.address(plan.Bridge, plan.Gateway)
}

// Connect joins a node's box to the bridge and adds routes to the Pods of all
// other nodes. A node that boots again is connected again.
func Connect(controlPlane, pid int, node plan.Node, all []plan.Node) error {
	hub, err := open(controlPlane)
	if err != nil {
		return err
	}
	defer hub.close()
	box, err := open(pid)
	if err != nil {
		return err
	}
	defer box.close()

	if err := box.up("lo"); err != nil {
		return err
	}
	if err := hub.cable(node, box); err != nil {
		return err
	}
	if err := box.address("eth0", node.Address); err != nil {
		return err
	}
	if err := hub.up(node.Name); err != nil {
		return err
	}
	if err := hub.route(node.PodCIDR, node.Address); err != nil {
		return err
	}
	// The default route leads no further. But a process of the node needs a
	// route to a Service address before kube-proxy's rules translate that.
	if err := box.route("0.0.0.0/0", plan.Gateway); err != nil {
		return err
	}
	for _, other := range all {
		if other.Name == node.Name {
			continue
		}
		if err := box.route(other.PodCIDR, other.Address); err != nil {
			return err
		}
	}
	return nil
}

// cable makes the pair of interfaces: eth0 in the node's box, and one with the
// node's name on the bridge. The interface of a node that has just died may
// still exist.
func (s *space) cable(node plan.Node, box *space) error {
	bridge, err := s.LinkByName(plan.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", plan.Bridge, err)
	}
	mac, err := net.ParseMAC(node.MAC)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = node.Name
	attributes.MasterIndex = bridge.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs:        attributes,
		PeerName:         "eth0",
		PeerHardwareAddr: mac,
		PeerNamespace:    netlink.NsFd(box.ns),
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := s.LinkAdd(veth)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EEXIST) || time.Now().After(deadline) {
			return fmt.Errorf("cable to %s: %w", node.Name, err)
		}
		if old, err := s.LinkByName(node.Name); err == nil {
			_ = s.LinkDel(old)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *space) up(name string) error {
	link, err := s.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := s.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s up: %w", name, err)
	}
	return nil
}

func (s *space) address(name, address string) error {
	link, err := s.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	parsed, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", address, plan.LinkBits))
	if err != nil {
		return err
	}
	if err := s.AddrReplace(link, parsed); err != nil {
		return fmt.Errorf("interface %s address %s: %w", name, address, err)
	}
	return s.up(name)
}

func (s *space) route(destination, via string) error {
	_, network, err := net.ParseCIDR(destination)
	if err != nil {
		return err
	}
	if err := s.RouteReplace(&netlink.Route{Dst: network, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route %s via %s: %w", destination, via, err)
	}
	return nil
}
