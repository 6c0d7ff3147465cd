// Package patience stretches waits for machines that are slower than those for
// which they were chosen, such as an emulated one.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Variable names the environment variable that holds the factor, a whole number.
const Variable = "PITSTOP_CLUSTER_PATIENCE"

// Of is how long to wait for what takes so long elsewhere.
func Of(usual time.Duration) time.Duration {
	return times(usual, os.Getenv(Variable))
}

// times leaves it as it is where there is no factor, or none from 1 to 1000.
func times(usual time.Duration, factor string) time.Duration {
	n, err := strconv.Atoi(factor)
	if err != nil || n < 1 || n > 1000 {
		return usual
	}
	return time.Duration(n) * usual
}
