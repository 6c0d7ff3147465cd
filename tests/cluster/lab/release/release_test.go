package release

import (
	"slices"
	"testing"
)

func TestOnly134IsWithoutResize(t *testing.T) {
	for name, want := range map[string]Settings{
		"1.34": {Gates: Gates{"InPlacePodVerticalScaling": false}},
		"1.36": {Mutating: true, ImageVolumes: true},
	} {
		got := Of(name)
		if got.Mutating != want.Mutating || got.ImageVolumes != want.ImageVolumes || !slices.Equal(got.Gates.Flags(), want.Gates.Flags()) {
			t.Errorf("%s: %+v, not %+v", name, got, want)
		}
		if got.Resizes() != (name != "1.34") {
			t.Errorf("%s: resizes: %v", name, got.Resizes())
		}
	}
}

func TestFlagsAreInOrder(t *testing.T) {
	got := Gates{"B": false, "C": true, "A": true}.Flags()
	want := []string{"--feature-gates=A=true", "--feature-gates=B=false", "--feature-gates=C=true"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := (Gates{}).Flags(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
