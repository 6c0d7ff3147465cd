package box

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serve answers requests for ever.
func (s *supervisor) serve() error {
	_ = os.Remove(socketPath)
	listener, err := net.Listen("unix", socketPath)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go s.answer(conn)
	}
}

func (s *supervisor) answer(conn net.Conn) {
	defer conn.Close()
	var (
		asked  request
		answer reply
		err    error
	)
	if err = json.NewDecoder(conn).Decode(&asked); err == nil {
		switch asked.Operation {
		case opStatus:
			answer.Components = s.status()
		case opSignal:
			err = s.signal(asked.Component, syscall.Signal(asked.Signal))
		case opStop:
			err = s.stop(asked.Component, syscall.Signal(asked.Signal))
		case opStart:
			err = s.resume(asked.Component)
		default:
			err = fmt.Errorf("unknown operation %q", asked.Operation)
		}
	}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(answer)
}

// Control sends requests to the supervisor of a running box. PID is that of
// process 1 of the box.
type Control struct{ PID int }

// Components returns the status of the box's components.
func (c Control) Components() ([]Status, error) {
	answer, err := c.ask(request{Operation: opStatus})
	return answer.Components, err
}

// Signal sends a signal to a component. If that ends the component, the restart
// loop starts it again.
func (c Control) Signal(component string, signal syscall.Signal) error {
	_, err := c.ask(request{Operation: opSignal, Component: component, Signal: int(signal)})
	return err
}

// Stop ends a component and keeps it stopped.
func (c Control) Stop(component string, signal syscall.Signal) error {
	_, err := c.ask(request{Operation: opStop, Component: component, Signal: int(signal)})
	return err
}

// Start starts a stopped component again.
func (c Control) Start(component string) error {
	_, err := c.ask(request{Operation: opStart, Component: component})
	return err
}

// ask connects through /proc/PID/root. This path leads into the box's mounts,
// and is short enough for a socket path.
func (c Control) ask(asked request) (reply, error) {
	conn, err := net.DialTimeout("unix", fmt.Sprintf("/proc/%d/root%s", c.PID, socketPath), time.Second)
	if err != nil {
		return reply{}, fmt.Errorf("box of process %d does not answer: %w", c.PID, err)
	}
	defer conn.Close()
	// After SIGTERM, a component may need long to end.
	_ = conn.SetDeadline(time.Now().Add(90 * time.Second))
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		return reply{}, err
	}
	var answer reply
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return reply{}, err
	}
	if answer.Error != "" {
		return reply{}, errors.New(answer.Error)
	}
	return answer, nil
}

// HostPIDs maps the process IDs of a box to those of the machine. The last
// number of NSpid in /proc/PID/status is the ID in the innermost namespace
// (proc(5)).
func HostPIDs(boxPID int) (map[int]int, error) {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", boxPID))
	if err != nil {
		return nil, err
	}
	found := map[int]int{}
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != namespace {
			continue
		}
		host, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			continue
		}
		if inner := innerPID(host); inner != 0 {
			found[inner] = host
		}
	}
	return found, nil
}

func innerPID(host int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				inner, _ := strconv.Atoi(fields[len(fields)-1])
				return inner
			}
		}
	}
	return 0
}

// Owner returns the state directory and name of the box whose process 1 is pid,
// read from the command line. For other processes, both are empty.
func Owner(pid int) (dir, name string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", ""
	}
	return owner(strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"))
}

// owner parses such a command line. systemd has its own settings before ours.
func owner(args []string) (dir, name string) {
	if len(args) < 5 || (len(args) > 5 && args[0] != "systemd") {
		return "", ""
	}
	args = args[len(args)-4:]
	if args[0] != InitCommand || args[1] != "--dir" {
		return "", ""
	}
	return args[2], args[3]
}
