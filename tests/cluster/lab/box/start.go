package box

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"pitstop.dev/tests/pitstop-cluster/lab/state"
)

// InitCommand is the hidden command of process 1 of a box. Its arguments are
// `--dir DIR NAME`; only people and Owner read them.
const InitCommand = "box-init"

// LogFile is the file where process 1 of a box logs.
const LogFile = "box-init.log"

// Started is a box whose process 1 waits for its Spec. Its namespaces exist and
// can be furnished.
type Started struct {
	state.Process
	pipe *os.File
}

// Start makes the namespaces of a box. Until Run is called, the box ends with
// this process.
func Start(dir, name, logs string, listener *os.File) (*Started, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(filepath.Join(logs, LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()

	command := exec.Command(self, InitCommand, "--dir", dir, name)
	command.Args[0] = "pitstop-cluster"
	command.Dir = "/"
	command.Stdin, command.Stdout, command.Stderr = read, output, output
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, // outlives the launcher and its terminal
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if listener != nil {
		command.ExtraFiles = []*os.File{listener}
	}
	if err := command.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start box %s: %w", name, err)
	}
	// Reap process 1 if it ends before this process.
	go func() { _ = command.Wait() }()
	process, err := state.Identify(command.Process.Pid)
	if err != nil {
		write.Close()
		return nil, fmt.Errorf("box %s ended at once, see %s: %w", name, output.Name(), err)
	}
	return &Started{Process: process, pipe: write}, nil
}

// Run sends the Spec, so that the box begins.
func (s *Started) Run(spec Spec) error {
	defer s.pipe.Close()
	if err := json.NewEncoder(s.pipe).Encode(spec); err != nil {
		return fmt.Errorf("box %s: %w", spec.Name, err)
	}
	return nil
}

// Abandon ends a box for which Run was not called.
func (s *Started) Abandon() { s.pipe.Close() }
