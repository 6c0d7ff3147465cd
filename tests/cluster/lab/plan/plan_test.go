package plan

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodesHaveDistinctPlaces(t *testing.T) {
	nodes, err := Nodes(MaxNodes)
	if err != nil {
		t.Fatal(err)
	}
	link := netip.PrefixFrom(netip.MustParseAddr(Gateway), LinkBits).Masked()
	pods := netip.MustParsePrefix(PodCIDR)
	seen := map[string]bool{Gateway: true}
	for _, node := range nodes {
		if address := netip.MustParseAddr(node.Address); !link.Contains(address) {
			t.Errorf("%s: address %s is not on the link %s", node.Name, address, link)
		}
		if cidr := netip.MustParsePrefix(node.PodCIDR); !pods.Contains(cidr.Addr()) {
			t.Errorf("%s: pods %s are not within %s", node.Name, cidr, pods)
		}
		for _, place := range []string{node.Name, node.Address, node.PodCIDR, node.MAC} {
			if seen[place] {
				t.Errorf("%s: %s is taken", node.Name, place)
			}
			seen[place] = true
		}
	}
}

func TestNodesOutOfRange(t *testing.T) {
	for _, n := range []int{-1, 0, MaxNodes + 1} {
		if _, err := Nodes(n); err == nil {
			t.Errorf("Nodes(%d) must fail", n)
		}
	}
}

func TestServiceAddressIsFirstOfItsRange(t *testing.T) {
	first := netip.MustParsePrefix(ServiceCIDR).Addr().Next()
	if first.String() != ServiceAddress {
		t.Errorf("first address of %s is %s, not %s", ServiceCIDR, first, ServiceAddress)
	}
}

func TestLayoutRefusesHiddenPlaces(t *testing.T) {
	for _, dir := range []string{"/", "/var/lib/lab", "/run/lab", "/proc", "/sys/x", "/dev/shm/x"} {
		if _, err := NewLayout(dir); err == nil {
			t.Errorf("NewLayout(%q) must fail", dir)
		}
	}
}

func TestEverythingOwnedIsBelowTheDirectory(t *testing.T) {
	layout, err := NewLayout("/somewhere/lab")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(layout.Owned(), layout.AuditLog(), layout.Var("node1")) {
		if !strings.HasPrefix(path, "/somewhere/lab/") || filepath.Clean(path) != path {
			t.Errorf("%s is not below the state directory", path)
		}
	}
}
