package box

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Init is process 1 of a box. It returns only when something failed.
func Init() error {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	var spec Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return fmt.Errorf("the launcher went away: %w", err)
	}
	if err := detachStdin(); err != nil {
		return err
	}
	if err := furnish(spec); err != nil {
		return fmt.Errorf("box %s: %w", spec.Name, err)
	}
	supervisor := newSupervisor(spec)
	go supervisor.reap()
	supervisor.startAll()
	log.Printf("box %s runs", spec.Name)
	return supervisor.serve()
}

// furnish makes the box's own view of the machine.
func furnish(spec Spec) error {
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := isolateMounts(spec); err != nil {
		return err
	}
	for name, value := range spec.Sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl: %w", err)
		}
	}
	return nil
}

func detachStdin() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return unix.Dup3(int(null.Fd()), 0, 0)
}
