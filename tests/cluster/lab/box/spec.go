// Package box runs processes in namespaces of their own: mount, pid, network,
// host name and IPC. A node is a box, the control plane is one.
//
// Process 1 of a box is this program again ("box-init"). When it is killed, the
// kernel ends every process, mount and interface of the box with it; so a box
// needs no other cleaning than its control groups, and that kill is also how a
// node crashes.
package box

import (
	"os"
	"time"
)

// Spec is what process 1 of a box is told. It arrives on its standard input: a
// box whose launcher died before it could send the whole of it ends at once.
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
	// Programs is a folder that comes first where the components look for
	// programs; "" for none.
	Programs string
	// Sysctls are set in the box's own network namespace: path below
	// /proc/sys to value.
	Sysctls map[string]string
	// Systemd makes systemd process 1 of the box, in a cgroup namespace.
	Systemd bool
	// Components are started in this order, without waiting for each other
	// unless gated.
	Components []Component
}

// environment is that of every component.
func (s Spec) environment() []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if s.Programs != "" {
		path = s.Programs + ":" + path
	}
	environment := []string{"PATH=" + path, "HOME=/root"}
	// Programs in Go collect garbage as seldom as whoever starts the box says.
	if percent, told := os.LookupEnv(collects); told {
		environment = append(environment, collects+"="+percent)
	}
	return environment
}

// collects is what programs in Go are told by.
const collects = "GOGC"

// Component is one supervised program.
type Component struct {
	Name string
	// Path is the program's file, Args its arguments with the name first.
	Path string
	Args []string
	// Gate holds back the first start.
	Gate *Gate
	// Listener hands it the inherited listening socket as descriptor 3.
	Listener bool
}

// Gate is an HTTPS address that must answer 200 first. It opens by itself after
// Patience: a node must also come up while the API server is away.
type Gate struct {
	URL      string
	CAFile   string
	Patience time.Duration
}

// State is what a component is doing.
type State string

// The states of a component.
const (
	Waiting State = "waiting" // before its first start
	Running State = "running"
	Backoff State = "backoff" // ended, to be started again
	Stopped State = "stopped" // on request
)

// Status is a component's state as its box tells it.
type Status struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"` // inside the box
	Restarts int    `json:"restarts"`
}

// socketPath is where process 1 takes requests, in the box's own /run.
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
