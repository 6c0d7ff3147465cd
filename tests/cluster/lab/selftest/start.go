package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
)

// startChecks begin with the check on which all others depend.
var startChecks = []check{
	{"up with two nodes", func(ctx context.Context, l *lab) error {
		before, err := lookAround(l.dir)
		if err != nil {
			return err
		}
		l.before = before
		text, err := l.up(ctx, "--nodes", "2")
		if err == nil && strings.TrimSpace(text) != l.kubeconfig {
			err = fmt.Errorf("standard output is %q", text)
		}
		return err
	}},
	{"up again prints the same and changes nothing", func(ctx context.Context, l *lab) error {
		was, err := l.status(ctx)
		if err != nil {
			return err
		}
		for _, args := range [][]string{{"up"}, {"up", "--nodes", "2"}, {"up", "--runtime", l.runtime}} {
			if text, err := l.call(ctx, args...); err != nil || strings.TrimSpace(text) != l.kubeconfig {
				return fmt.Errorf("%v: %q, %w", args, text, err)
			}
		}
		is, err := l.status(ctx)
		if err == nil && is.ControlPlane.PID != was.ControlPlane.PID {
			err = errors.New("the control plane is another one")
		}
		return err
	}},
	{"up with another number of nodes is refused", func(ctx context.Context, l *lab) error {
		return refused(l.call(ctx, "up", "--nodes", "3"))
	}},
	{"up with another runtime is refused", func(ctx context.Context, l *lab) error {
		for _, name := range containerd.Names() {
			if name == l.runtime {
				continue
			}
			if err := refused(l.call(ctx, "up", "--runtime", name)); err != nil {
				return err
			}
		}
		return nil
	}},
	{"up from another directory of the same name is refused and names the cluster that runs", func(ctx context.Context, l *lab) error {
		other := &lab{program: l.program, dir: filepath.Join(l.dir+"-other", filepath.Base(l.dir))}
		_, err := other.call(ctx, "up")
		if err == nil || !strings.Contains(err.Error(), "down --dir "+l.dir) {
			return fmt.Errorf("got: %w", err)
		}
		if exists(other.dir) {
			return fmt.Errorf("%s was made", other.dir)
		}
		return nil
	}},
	{"down of another directory leaves the cluster alone", func(ctx context.Context, l *lab) error {
		other := &lab{program: l.program, dir: l.dir + "-other"}
		if _, err := other.call(ctx, "down"); err != nil {
			return err
		}
		_, err := l.call(ctx, "status")
		return err
	}},
}

func refused(text string, err error) error {
	if err == nil {
		return fmt.Errorf("accepted: %q", text)
	}
	return nil
}

// endChecks take the cluster down.
var endChecks = []check{
	{"down leaves nothing behind", func(ctx context.Context, l *lab) error {
		if _, err := l.call(ctx, "down"); err != nil {
			return err
		}
		return l.before.compare(l.dir)
	}},
	{"down again is no error, and status says so with code 3", func(ctx context.Context, l *lab) error {
		if _, err := l.call(ctx, "down"); err != nil {
			return err
		}
		_, err := l.call(ctx, "status")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			return fmt.Errorf("status ended with %w", err)
		}
		return nil
	}},
	{"after a launcher killed half-way, down leaves nothing behind", func(ctx context.Context, l *lab) error {
		for _, delay := range []time.Duration{20, 60, 150, 400, 1500} {
			if err := l.interruptedUp(ctx, delay*time.Millisecond); err != nil {
				return fmt.Errorf("killed after %d ms: %w", delay, err)
			}
		}
		return nil
	}},
	{"with its record lost, down still leaves nothing behind", func(ctx context.Context, l *lab) error {
		if _, err := l.up(ctx); err != nil {
			return err
		}
		if err := os.Remove(l.dir + "/state.json"); err != nil {
			return err
		}
		if _, err := l.call(ctx, "down"); err != nil {
			return err
		}
		// Only the record held the machine's earlier settings.
		if err := l.before.restoreSettings(); err != nil {
			return err
		}
		return l.before.compare(l.dir)
	}},
	{"up and down in a row, --keep-logs keeps the logs only", func(ctx context.Context, l *lab) error {
		if _, err := l.up(ctx); err != nil {
			return err
		}
		if _, err := l.call(ctx, "down", "--keep-logs"); err != nil {
			return err
		}
		entries, err := os.ReadDir(l.dir)
		if err != nil {
			return err
		}
		if len(entries) != 1 || entries[0].Name() != "logs" {
			return fmt.Errorf("left: %v", entries)
		}
		if _, err := l.call(ctx, "down"); err != nil {
			return err
		}
		return l.before.compare(l.dir)
	}},
}

// interruptedUp kills an `up` some time after its start and cleans up.
func (l *lab) interruptedUp(ctx context.Context, after time.Duration) error {
	command := exec.CommandContext(ctx, l.program, "up", "--dir", l.dir, "--runtime", l.runtime)
	if err := command.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	if err := command.Process.Kill(); err != nil {
		return err
	}
	_ = command.Wait() // killed: no success to expect
	if _, err := l.call(ctx, "down"); err != nil {
		return err
	}
	return l.before.compare(l.dir)
}
