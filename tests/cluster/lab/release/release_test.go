package release

import (
	"reflect"
	"slices"
	"testing"
)

func TestWhatReleasesHave(t *testing.T) {
	without := Gates{"InPlacePodVerticalScaling": false}
	for name, want := range map[string]Settings{
		"1.34":         {Gates: without},
		"1.35":         {ImageVolumes: true},
		"1.36":         {Mutating: true, ImageVolumes: true},
		"1.36-as-1.34": {Gates: without, Emulated: "1.34"},
		"1.36-as-1.35": {ImageVolumes: true, Emulated: "1.35"},
		"1.37":         {Mutating: true, ImageVolumes: true},
	} {
		got := Of(name)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, not %+v", name, got, want)
		}
		if got.Resizes() != (want.Gates == nil) {
			t.Errorf("%s: resizes: %v", name, got.Resizes())
		}
	}
}

func TestWhatEmulatesSaysSo(t *testing.T) {
	if got := named("1.36", ""); got != "1.36" || Of(got).Emulation() != nil {
		t.Error(got)
	}
	got := named("1.36", "1.34")
	if got != "1.36-as-1.34" || !slices.Equal(Of(got).Emulation(), []string{"--emulated-version=1.34"}) {
		t.Error(got)
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
