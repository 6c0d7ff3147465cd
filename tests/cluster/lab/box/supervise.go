package box

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses before a restart double from firstPause to lastPause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 3 * time.Second
	// healthyAfter is the run time of a component after which the pause begins
	// anew.
	healthyAfter = 10 * time.Second
)

// listenerFD is the descriptor of the inherited listening socket, in process 1
// and in the component that gets it.
const listenerFD = 3

// supervisor starts the components and restarts them when they end. mu guards
// everything. Processes are reaped only under mu, so a process ID that is read
// under mu still names that process.
type supervisor struct {
	spec     Spec
	listener *os.File

	mu         sync.Mutex
	changed    *sync.Cond
	components map[string]*component
}

type component struct {
	Component
	state    State
	pid      int
	restarts int
}

// ended records the end of the component's process.
func (c *component) ended() {
	c.pid = 0
	c.restarts++
	if c.state != Stopped {
		c.state = Backoff
	}
}

func newSupervisor(spec Spec) *supervisor {
	s := &supervisor{spec: spec, components: map[string]*component{}}
	s.changed = sync.NewCond(&s.mu)
	for _, c := range spec.Components {
		s.components[c.Name] = &component{Component: c, state: Waiting}
		if c.Listener {
			unix.CloseOnExec(listenerFD)
			s.listener = os.NewFile(listenerFD, "listener")
		}
	}
	return s
}

func (s *supervisor) startAll() {
	for _, c := range s.spec.Components {
		go s.keepRunning(s.components[c.Name])
	}
}

// keepRunning is the restart loop of one component.
func (s *supervisor) keepRunning(c *component) {
	if c.Gate != nil {
		if err := c.Gate.wait(); err != nil {
			log.Printf("%s: starts without its gate: %v", c.Name, err)
		}
	}
	pause := firstPause
	for {
		s.mu.Lock()
		for c.state == Stopped {
			s.changed.Wait()
		}
		began := time.Now()
		err := s.start(c)
		if err != nil {
			c.ended()
		}
		for c.pid != 0 {
			s.changed.Wait()
		}
		s.mu.Unlock()
		if err != nil {
			log.Printf("%s: %v", c.Name, err)
		}
		if time.Since(began) > healthyAfter {
			pause = firstPause
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
}

// start starts the component's process. The caller holds mu.
func (s *supervisor) start(c *component) error {
	output, err := os.OpenFile(filepath.Join(s.spec.Logs, c.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	files := []*os.File{os.Stdin, output, output}
	if c.Listener {
		files = append(files, s.listener)
	}
	process, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Dir:   "/",
		Env:   s.spec.environment(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	c.pid, c.state = process.Pid, Running
	log.Printf("%s: process %d", c.Name, c.pid)
	// reap reaps the process.
	return process.Release()
}

// reap reaps every process that ends: the components and, as the box's process
// 1, orphans.
func (s *supervisor) reap() {
	for {
		// Wait until a child ends, but do not reap it yet: its ID must stay
		// taken until the lock is held.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
			for _, c := range s.components {
				if c.pid == pid {
					c.ended()
					log.Printf("%s: process %d ended: %s", c.Name, pid, describe(status))
				}
			}
		}
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("signal %s", unix.SignalName(status.Signal()))
	}
	return fmt.Sprintf("code %d", status.ExitStatus())
}

// signal sends a signal to a running component.
func (s *supervisor) signal(name string, signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(name)
	if err != nil {
		return err
	}
	if c.pid == 0 {
		return fmt.Errorf("%s is not running (%s)", name, c.state)
	}
	return unix.Kill(c.pid, signal)
}

// stop ends a component, waits for its end and keeps it from being started.
func (s *supervisor) stop(name string, signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(name)
	if err != nil {
		return err
	}
	c.state = Stopped
	if c.pid == 0 {
		return nil
	}
	if err := unix.Kill(c.pid, signal); err != nil {
		return err
	}
	for c.pid != 0 {
		s.changed.Wait()
	}
	return nil
}

// resume lets a stopped component run again.
func (s *supervisor) resume(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.find(name)
	if err != nil {
		return err
	}
	if c.state == Stopped {
		c.state = Waiting
		s.changed.Broadcast()
	}
	return nil
}

func (s *supervisor) find(name string) (*component, error) {
	if c, ok := s.components[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("box %s has no component %q", s.spec.Name, name)
}

func (s *supervisor) status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	for _, spec := range s.spec.Components {
		c := s.components[spec.Name]
		list = append(list, Status{Name: c.Name, State: c.state, PID: c.pid, Restarts: c.restarts})
	}
	return list
}

// wait returns nil when the address answers 200, or the last error after the
// gate's patience.
func (g *Gate) wait() error {
	authority, err := os.ReadFile(g.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
		Timeout:   2 * time.Second,
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.Patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
