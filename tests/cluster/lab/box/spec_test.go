package box

import (
	"slices"
	"testing"
)

func TestProgramsOfTheBoxComeFirst(t *testing.T) {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for folder, want := range map[string]string{"": "PATH=" + system, "/b": "PATH=/b:" + system} {
		if got := (Spec{Programs: folder}).environment()[0]; got != want {
			t.Errorf("%q: %s", folder, got)
		}
	}
}

func TestComponentsCollectGarbageAsTheirStarterDoes(t *testing.T) {
	t.Setenv(collects, "400")
	if got := (Spec{}).environment(); !slices.Contains(got, "GOGC=400") {
		t.Errorf("%q", got)
	}
}
