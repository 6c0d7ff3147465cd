package network

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"

	"github.com/vishvananda/netns"
)

// Dialer makes TCP connections from within a box's network: a socket stays in
// the namespace that it was made in, whoever uses it afterwards.
type Dialer struct{ PID int }

// DialContext connects to an address given as numbers; there are no names in a
// box.
func (d Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is never given back: it ends with this goroutine, and
		// so nothing else can run in the wrong namespace.
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
		// One address of one family: the dialer makes its socket on this
		// very goroutine.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// Transport is an HTTP transport from within the box's network.
func (d Dialer) Transport() *http.Transport {
	return &http.Transport{DialContext: d.DialContext}
}
