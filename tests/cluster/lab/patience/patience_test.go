package patience

import (
	"testing"
	"time"
)

func TestOnlyAFactorStretches(t *testing.T) {
	for factor, want := range map[string]time.Duration{
		"": 2 * time.Second, "1": 2 * time.Second, "10": 20 * time.Second,
		"0": 2 * time.Second, "-3": 2 * time.Second, "1001": 2 * time.Second, "x": 2 * time.Second,
	} {
		if got := times(2*time.Second, factor); got != want {
			t.Errorf("%q: %v, not %v", factor, got, want)
		}
	}
}
