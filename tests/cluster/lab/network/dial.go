package network

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"

	"github.com/vishvananda/netns"
)

// Dialer makes TCP connections from a box's network. A socket stays in the
// namespace in which it was made, whichever thread uses it later.
type Dialer struct{ PID int }

// DialContext connects to a numeric address; a box resolves no names.
func (d Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread stays locked and ends with this goroutine, so no other
		// goroutine runs in the wrong namespace.
		runtime.LockOSThread()
		ns, err := netns.GetFromPid(d.PID)
		if err != nil {
			done <- result{err: fmt.Errorf("network namespace of process %d: %w", d.PID, err)}
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- result{err: fmt.Errorf("enter network namespace of process %d: %w", d.PID, err)}
			return
		}
		// For one address of one family, the dialer makes its socket on this
		// goroutine.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// Transport returns an HTTP transport that dials from the box's network.
func (d Dialer) Transport() *http.Transport {
	return &http.Transport{DialContext: d.DialContext}
}
