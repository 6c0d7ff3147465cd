// Package box runs processes in namespaces of their own: mount, pid, network,
// host name and IPC. Each node is a box, and so is the control plane.
//
// Process 1 of a box is this program ("box-init"). When it is killed, the
// kernel ends every process, mount and interface of the box. So only control
// groups need cleaning, and such a kill is also how a node crashes.
package box

import (
	"os"
	"time"
)

// Spec configures process 1 of a box, which reads it from standard input. If
// the launcher dies before it has sent the whole Spec, the box ends at once.
type Spec struct {
	// Name is the box's name and its host name.
	Name string
	// Keep lists paths whose mounts stay visible: the state directory and
	// this program.
	Keep []string
	// Var is the directory that the box sees as /var.
	Var string
	// Logs is the directory of the components' log files.
	Logs string
	// Programs is the folder that comes first in the PATH of the components; ""
	// for none.
	Programs string
	// Sysctls maps paths below /proc/sys to values, which are set in the box's
	// own network namespace.
	Sysctls map[string]string
	// Systemd makes systemd process 1 of the box, in a cgroup namespace.
	Systemd bool
	// Components start in this order. They do not wait for each other, only for
	// their gates.
	Components []Component
}

// environment is the environment of every component.
func (s Spec) environment() []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if s.Programs != "" {
		path = s.Programs + ":" + path
	}
	environment := []string{"PATH=" + path, "HOME=/root"}
	// Components get the GOGC of the process that starts the box.
	if percent, told := os.LookupEnv(collects); told {
		environment = append(environment, collects+"="+percent)
	}
	return environment
}

// collects is the variable that controls garbage collection in Go programs.
const collects = "GOGC"

// Component is one supervised program.
type Component struct {
	Name string
	// Path is the program's file, Args its arguments with the name first.
	Path string
	Args []string
	// Gate holds back the first start; nil for none.
	Gate *Gate
	// Listener gives it the inherited listening socket as descriptor 3.
	Listener bool
}

// Gate is an HTTPS address that must answer 200 first. It opens by itself after
// Patience, because a node must also start while the API server is away.
type Gate struct {
	URL      string
	CAFile   string
	Patience time.Duration
}

// State is the state of a component.
type State string

// The states of a component.
const (
	Waiting State = "waiting" // before its first start
	Running State = "running"
	Backoff State = "backoff" // ended, to be started again
	Stopped State = "stopped" // on request
)

// Status is a component's state as its box reports it.
type Status struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"` // inside the box
	Restarts int    `json:"restarts"`
}

// socketPath is the socket of the supervisor, in the box's own /run.
const socketPath = "/run/pitstop-box.sock"

// Operations of a request.
const (
	opStatus = "status"
	opSignal = "signal"
	opStop   = "stop"
	opStart  = "start"
)

type request struct {
	Operation string
	Component string
	Signal    int
}

type reply struct {
	Error      string
	Components []Status
}
