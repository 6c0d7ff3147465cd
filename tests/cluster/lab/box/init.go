package box

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Init is process 1 of a box. It returns only on failure.
func Init() error {
	spec, err := readSpec()
	if err != nil {
		return fmt.Errorf("the launcher went away: %w", err)
	}
	if err := furnish(spec); err != nil {
		return fmt.Errorf("box %s: %w", spec.Name, err)
	}
	if spec.Systemd {
		return fmt.Errorf("box %s: %w", spec.Name, becomeSystemd(spec))
	}
	return supervise(spec)
}

// Supervise starts the components of a furnished box, and restarts them when
// they end. It returns only on failure.
func Supervise() error {
	spec, err := readSpec()
	if err != nil {
		return err
	}
	return supervise(spec)
}

// readSpec reads the Spec from standard input, and then closes that.
func readSpec() (Spec, error) {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	var spec Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return Spec{}, err
	}
	return spec, detachStdin()
}

func supervise(spec Spec) error {
	supervisor := newSupervisor(spec)
	go supervisor.reap()
	supervisor.startAll()
	log.Printf("box %s runs", spec.Name)
	return supervisor.serve()
}

// furnish sets the box's host name, mounts and sysctls.
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
