package box

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Systemd is the path of Debian's systemd.
const Systemd = "/lib/systemd/systemd"

// SuperviseCommand is the hidden command that supervises the components of a box
// whose process 1 is systemd. It reads the Spec from its standard input.
const SuperviseCommand = "box-supervise"

const (
	unitName  = "pitstop-box.service"
	unitsPath = "/run/systemd/system"
	specPath  = "/run/pitstop-box.json"
)

// becomeSystemd replaces process 1 of a furnished box by systemd, which starts
// only the supervisor and no unit of the machine. The box's group becomes the
// root of its groups, with cgroup v2 alone. It returns only on failure.
func becomeSystemd(spec Spec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(specPath, text, 0o600); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(unitsPath, 0o755); err != nil {
		return err
	}
	unit := supervisorUnit(program, filepath.Join(spec.Logs, LogFile))
	if err := os.WriteFile(filepath.Join(unitsPath, unitName), []byte(unit), 0o644); err != nil {
		return err
	}
	// A thread changes its own namespace. The program that it executes stays in
	// it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	// The machine has one cgroup2 file system. It can be mounted only once at a
	// directory.
	if err := unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /sys/fs/cgroup: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags, ""); err != nil {
		return fmt.Errorf("mount /sys/fs/cgroup: %w", err)
	}
	// In a container, systemd takes settings from its arguments (systemd(1)).
	// This process's own arguments follow, for Owner.
	args := []string{
		"systemd", "systemd.unit=" + unitName, "systemd.hostname=" + spec.Name, "systemd.show_status=no",
		"systemd.log_target=null",
	}
	environment := append(spec.environment(), "container=pitstop-cluster")
	if err := unix.Exec(Systemd, append(args, os.Args[1:]...), environment); err != nil {
		return fmt.Errorf("start %s: %w", Systemd, err)
	}
	return nil
}

// supervisorUnit is the unit of the supervisor, see systemd.service(5) and
// systemd.exec(5).
func supervisorUnit(program, log string) string {
	escape := func(path string) string { return strings.ReplaceAll(path, "%", "%%") }
	return fmt.Sprintf(`[Unit]
DefaultDependencies=no
[Service]
Type=exec
ExecStart=%s %s
StandardInput=file:%s
StandardOutput=append:%s
StandardError=inherit
LimitNOFILE=1048576
TasksMax=infinity
`, escape(strconv.Quote(program)), SuperviseCommand, specPath, escape(log))
}
