package containerd

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyNamesOfRuntimesAreTaken(t *testing.T) {
	for _, name := range Names() {
		if err := Check(name); err != nil {
			t.Error(err)
		}
	}
	err := Check("crio")
	want := "--runtime crio: there is no such runtime, only containerd-2, containerd-1"
	if err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

func TestProgramsAreFoundBesideTheClustersOrOneFolderAbove(t *testing.T) {
	bin := t.TempDir()
	newest, older := filepath.Join(bin, "pitstop-cluster"), filepath.Join(bin, "1.34", "pitstop-cluster")
	folder := filepath.Join(bin, Two)
	if got := Folder(Two, newest); got != folder {
		t.Errorf("nothing is built: %s", got)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{newest, older} {
		if got := Folder(Two, program); got != folder {
			t.Errorf("%s: %s", program, got)
		}
		if got := Folder(One, program); got != "" {
			t.Errorf("Debian's has no folder of its own, not %s", got)
		}
	}
}
