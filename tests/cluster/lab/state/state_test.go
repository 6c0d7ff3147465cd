package state

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if loaded, err := Load(path); loaded != nil || err != nil {
		t.Fatalf("a missing file must give nil, got %v, %v", loaded, err)
	}
	saved := &State{
		Kubernetes: "1.36", Program: "/p",
		Nodes: 2, Port: 1234, Complete: true,
		Boxes:   map[string]Process{"node1": {PID: 7, Started: 8, Boot: "b"}},
		Halted:  map[string]bool{"node2": true},
		Sysctls: map[string]string{"kernel/panic": "1"},
	}
	if err := saved.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(path)
	if err != nil || !reflect.DeepEqual(saved, loaded) {
		t.Fatalf("loaded %+v, %v", loaded, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("saving left other files: %v", entries)
	}
}

func TestLoadNamesTheBrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Fatal("a broken file must be an error")
	}
}

func TestParseStartTimeWithHardNames(t *testing.T) {
	fields := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, name := range []string{"(plain)", "(with space)", "(a) b (c))"} {
		got, err := parseStartTime([]byte("42 " + name + fields))
		if err != nil || got != 4711 {
			t.Errorf("%s: got %d, %v", name, got, err)
		}
	}
	if _, err := parseStartTime([]byte("42 (gone) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711")); err == nil {
		t.Error("a zombie does not run")
	}
	if _, err := parseStartTime([]byte("garbage")); err == nil {
		t.Error("garbage must be an error")
	}
}

func TestAReusedProcessIDIsNeverKilled(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	real, err := Identify(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []Process{
		{PID: real.PID, Started: real.Started - 1, Boot: real.Boot},
		{PID: real.PID, Started: real.Started, Boot: "another boot"},
	} {
		if other.Alive() {
			t.Errorf("%+v must not pass for %+v", other, real)
		}
		if err := other.Kill(time.Second); err != nil {
			t.Error(err)
		}
	}
	if !real.Alive() {
		t.Fatal("the process was killed under another identity")
	}
	if err := real.Kill(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if real.Alive() {
		t.Error("the process lives on")
	}
	if err := real.Kill(time.Second); err != nil {
		t.Errorf("a second kill must be no error: %v", err)
	}
}
