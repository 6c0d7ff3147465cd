// Package patience lengthens timeouts on slow machines, such as emulated ones.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Variable names the environment variable that holds the factor, a whole number.
const Variable = "PITSTOP_CLUSTER_PATIENCE"

// Of returns the usual timeout, multiplied by the factor.
func Of(usual time.Duration) time.Duration {
	return times(usual, os.Getenv(Variable))
}

// times ignores a factor that is no number from 1 to 1000.
func times(usual time.Duration, factor string) time.Duration {
	n, err := strconv.Atoi(factor)
	if err != nil || n < 1 || n > 1000 {
		return usual
	}
	return time.Duration(n) * usual
}
