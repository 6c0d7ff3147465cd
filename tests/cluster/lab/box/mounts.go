package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// system lists the directories that every box shares with the machine.
var system = []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64"}

// isolateMounts gives the box its own /proc, /run and /var, and unmounts the
// other inherited mounts that it does not need. Otherwise the box would keep
// the overlays and namespaces of other container runtimes busy.
//
// /sys stays: a new mount would hide /sys/fs/cgroup.
func isolateMounts(spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range unwanted(mountPoints(string(text)), append(system, spec.Keep...)) {
		// The mounts change during the loop; some are already gone.
		_ = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := prepareVar(spec.Var); err != nil {
		return err
	}
	if err := unix.Mount(spec.Var, "/var", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /var: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return err
	}
	// The kubelet's Bidirectional volumes need shared mounts. Only the box's
	// own mount namespaces share them, because they are private first.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

// prepareVar makes the folders and links that programs expect in /var.
func prepareVar(dir string) error {
	for _, name := range []string{"lib", "log", "cache", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"run": "/run", "lock": "/run/lock"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky)
}

// mountPoints reads /proc/self/mountinfo (proc(5)): the mount point is the
// fifth field, with octal escapes.
func mountPoints(mountinfo string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for _, line := range strings.Split(mountinfo, "\n") {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}

// unwanted returns the mounts to unmount, newest first. It keeps those at or
// above a path to keep, and those of /proc, /sys and /dev.
func unwanted(points, keep []string) []string {
	var out []string
	for i := len(points) - 1; i >= 0; i-- {
		point := points[i]
		needed := point == "/" || point == "/proc" || within(point, "/sys") || within(point, "/dev")
		for _, path := range keep {
			needed = needed || within(path, point)
		}
		if !needed {
			out = append(out, point)
		}
	}
	return out
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
