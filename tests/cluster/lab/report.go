package lab

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// report prints progress, with the time since its beginning.
type report struct {
	out   io.Writer
	begin time.Time
}

func newReport(out io.Writer) *report { return &report{out: out, begin: time.Now()} }

func (r *report) step(format string, args ...any) {
	fmt.Fprintf(r.out, "%6.2fs  %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

func isAddressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
