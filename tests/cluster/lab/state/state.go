// Package state keeps the record of what a cluster has running, so that a later
// command finds exactly those processes and no other.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State is the content of D/state.json.
type State struct {
	// Kubernetes is the release that runs, such as "1.36", and Program the file
	// that holds it. Commands that act on the cluster find their program here.
	Kubernetes string `json:"kubernetes"`
	Program    string `json:"program"`
	// Runtime is the container runtime of its nodes, such as "containerd-2".
	Runtime string `json:"runtime"`
	// CgroupDriver is the nodes' cgroup driver, such as "systemd".
	CgroupDriver string `json:"cgroupDriver"`
	// Nodes is the requested number of nodes.
	Nodes int `json:"nodes"`
	// Port is the host's port that leads to the API server.
	Port int `json:"port"`
	// Complete is set once the cluster was up.
	Complete bool `json:"complete"`
	// Boxes holds process 1 of every box that was started, by box name.
	Boxes map[string]Process `json:"boxes"`
	// Halted holds the nodes that were stopped on request.
	Halted map[string]bool `json:"halted,omitempty"`
	// Sysctls holds the earlier values of machine-wide settings that a kubelet
	// changes.
	Sysctls map[string]string `json:"sysctls,omitempty"`
}

// Load reads the state; a missing file gives nil.
func Load(path string) (*State, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := &State{}
	if err := json.Unmarshal(data, state); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if state.Boxes == nil {
		state.Boxes = map[string]Process{}
	}
	return state, nil
}

// Save replaces the file as a whole: a reader sees the old or the new one.
func (s *State) Save(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), ".state.new")
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
