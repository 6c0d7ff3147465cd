package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies one process uniquely: the kernel can give a process ID to
// another process later, even after a reboot.
type Process struct {
	PID int `json:"pid"`
	// Started is the start time in clock ticks since boot, field 22 of
	// /proc/PID/stat (proc(5)).
	Started uint64 `json:"started"`
	// Boot is the machine's boot id, from /proc/sys/kernel/random/boot_id.
	Boot string `json:"boot"`
}

// Identify records the running process pid.
func Identify(pid int) (Process, error) {
	started, err := startTime(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Started: started, Boot: boot}, nil
}

// Alive says whether this very process still runs. A zombie does not run.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := Identify(p.PID)
	return err == nil && now == p
}

// Kill sends SIGKILL to this very process, never to another one with its ID,
// and waits until it has ended. A process that has already ended is no error.
func (p Process) Kill(wait time.Duration) error {
	if p.PID <= 0 {
		return nil
	}
	// The descriptor pins the process, so compare its identity afterwards.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	deadline := time.Now().Add(wait)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process %d did not end within %s after SIGKILL", p.PID, wait)
		}
		// A pidfd becomes readable when its process ends (pidfd_open(2)).
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for %d: %w", p.PID, err)
		}
		if n > 0 {
			return nil
		}
	}
}

func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStartTime(stat)
}

// parseStartTime reads the start time from the text of /proc/PID/stat. The
// command name, in parentheses, may itself hold spaces and parentheses.
func parseStartTime(stat []byte) (uint64, error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("unreadable stat: no command name")
	}
	fields := strings.Fields(string(stat[end+1:])) // from field 3, the process state
	if len(fields) < 20 {
		return 0, errors.New("unreadable stat: too few fields")
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
