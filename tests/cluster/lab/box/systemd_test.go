package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// systemd's own checker reads the unit.
func TestTheSupervisorsUnitIsGood(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	path := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(path, []byte(supervisorUnit("/bin/true", "/100%/a b.log")), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%v: %s", err, output)
	}
}

func TestABoxIsFoundByItsProcess1(t *testing.T) {
	for _, args := range [][]string{
		{"pitstop-cluster", InitCommand, "--dir", "/d", "node1"},
		{"systemd", "systemd.unit=" + unitName, InitCommand, "--dir", "/d", "node1"},
	} {
		if dir, name := owner(args); dir != "/d" || name != "node1" {
			t.Errorf("%v: %q %q", args, dir, name)
		}
	}
	for _, args := range [][]string{
		{}, {""}, {"pitstop-cluster", "up", "--dir", "/d", "node1"}, {"x", InitCommand, "--dir", "/d"},
		{"grep", "more", InitCommand, "--dir", "/d", "node1"},
	} {
		if dir, name := owner(args); dir != "" || name != "" {
			t.Errorf("%v: %q %q", args, dir, name)
		}
	}
}
