package plan

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Layout is the state directory of a cluster. Everything that a cluster writes
// is below it.
type Layout struct{ Dir string }

// NewLayout makes the path absolute. It refuses directories that a box hides
// from itself, where it could not find its own files.
func NewLayout(dir string) (Layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Layout{}, err
	}
	// In a box, a symbolic link into a hidden directory leads nowhere.
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	for _, hidden := range []string{"/var", "/run", "/proc", "/sys", "/dev"} {
		if abs == hidden || strings.HasPrefix(abs, hidden+"/") {
			return Layout{}, fmt.Errorf("--dir %s: a cluster cannot lie under %s, which its nodes replace by their own", abs, hidden)
		}
	}
	if abs == "/" {
		return Layout{}, fmt.Errorf("--dir must not be the root directory")
	}
	return Layout{Dir: abs}, nil
}

func (l Layout) at(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// State is the file that records what runs.
func (l Layout) State() string { return l.at("state.json") }

// Kubeconfig is the administrator's access from the host.
func (l Layout) Kubeconfig() string { return l.at("kubeconfig") }

// PKI is a certificate or key file.
func (l Layout) PKI(file string) string { return l.at("pki", file) }

// Box holds the files of one box.
func (l Layout) Box(name string) string { return l.at("boxes", name) }

// Config is a configuration file of one box.
func (l Layout) Config(box, file string) string { return l.at("boxes", box, "config", file) }

// Var is what a box sees as /var.
func (l Layout) Var(box string) string { return l.at("boxes", box, "var") }

// Logs holds the log files of one box.
func (l Layout) Logs(box string) string { return l.at("logs", box) }

// AllLogs holds the log files of all boxes.
func (l Layout) AllLogs() string { return l.at("logs") }

// AuditLog is the API server's audit log.
func (l Layout) AuditLog() string { return filepath.Join(l.Logs(ControlPlane), "audit.log") }

// Registry holds the images of the lab's registry.
func (l Layout) Registry() string { return l.at("registry") }

// Temporary holds files of one command.
func (l Layout) Temporary() string { return l.at("tmp") }

// Owned lists every entry of the directory that a cluster makes, except logs.
// Only these and the logs are ever removed.
func (l Layout) Owned() []string {
	return []string{l.at("pki"), l.at("boxes"), l.Registry(), l.Temporary(), l.Kubeconfig(), l.State()}
}

// Cgroup is the group, in each hierarchy, above all groups of all clusters.
const Cgroup = "pitstop-lab"

// Name distinguishes clusters that run at the same time.
func (l Layout) Name() string { return filepath.Base(l.Dir) }

// Cgroup is the group above all groups of this cluster.
func (l Layout) Cgroup() string { return Cgroup + "/" + l.Name() }

// NodeCgroup is the group under which a node's kubelet keeps its pods.
func (l Layout) NodeCgroup(node string) string { return l.Cgroup() + "/" + node }

// BoxCgroup is the group of a box's own processes. Through it they can be found
// without any record.
func (l Layout) BoxCgroup(box string) string { return l.Cgroup() + "/boxes/" + box }
