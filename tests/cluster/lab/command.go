// Package lab holds the commands that run clusters.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pitstop.dev/tests/pitstop-cluster/lab/box"
	"pitstop.dev/tests/pitstop-cluster/lab/cgroup"
	"pitstop.dev/tests/pitstop-cluster/lab/containerd"
	"pitstop.dev/tests/pitstop-cluster/lab/preflight"
)

// DefaultDir is the state directory when none is given.
const DefaultDir = "target/cluster/default"

// errDown reports that the cluster is not up.
var errDown = errors.New("the cluster is down")

// ExitCode returns 2 when the machine cannot run a cluster, 3 when the cluster
// is down, and 1 for other failures.
func ExitCode(err error) int {
	var unfit *preflight.Error
	switch {
	case errors.As(err, &unfit):
		return 2
	case errors.Is(err, errDown):
		return 3
	default:
		return 1
	}
}

// Command returns the command line without the components.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "pitstop-cluster",
		Short: "A real Kubernetes for tests",
		Long: `A real Kubernetes for tests: etcd, API server, controller manager, scheduler,
and any number of nodes with kubelet, kube-proxy and containerd, each in
namespaces of its own on this machine.

With the name of a component as first argument it is that component: etcd,
kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet,
registry.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	// The Kubernetes libraries add the flag version to every command line.
	if foreign := pflag.CommandLine.Lookup("version"); foreign != nil {
		foreign.Hidden = true
	}
	root.PersistentFlags().String("dir", DefaultDir, "state directory of the cluster")
	root.AddCommand(
		upCommand(), downCommand(), statusCommand(),
		killCommand(), stopCommand(), startCommand(),
		haltCommand(), bootCommand(), rebootCommand(),
		execCommand(), pushCommand(),
		initCommand(), superviseCommand(), forwardCommand(),
	)
	return root
}

// run returns a command's function. The function opens the cluster that --dir
// names; its context ends on SIGINT or SIGTERM.
func run(do func(ctx context.Context, c *Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		dir, err := command.Flags().GetString("dir")
		if err != nil {
			return err
		}
		cluster, err := Open(dir)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return do(ctx, cluster, args)
	}
}

func upCommand() *cobra.Command {
	var wanted Wanted
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster; prints the path of its kubeconfig",
		Args:  cobra.NoArgs,
		RunE: run(func(ctx context.Context, c *Cluster, _ []string) error {
			if err := c.Up(ctx, wanted); err != nil {
				return err
			}
			fmt.Println(c.layout.Kubeconfig())
			return nil
		}),
	}
	command.Flags().IntVar(&wanted.Nodes, "nodes", 0, "number of nodes (default: as many as run, or 1)")
	command.Flags().StringVar(&wanted.Runtime, "runtime", "", runtimeHelp)
	command.Flags().StringVar(&wanted.CgroupDriver, "cgroup-driver", "", driverHelp)
	return command
}

var runtimeHelp = "container runtime of the nodes: " + strings.Join(containerd.Names(), " or ") +
	" (default: the one that runs, or " + containerd.Default + ")"

var driverHelp = "cgroup driver of the nodes: " + strings.Join(cgroup.Drivers(), " or ") + ", which needs cgroup v2" +
	" (default: the one that runs, or " + cgroup.DefaultDriver + ")"

func downCommand() *cobra.Command {
	var keepLogs bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and leave nothing behind",
		Args:  cobra.NoArgs,
		RunE:  run(func(ctx context.Context, c *Cluster, _ []string) error { return c.Down(ctx, keepLogs) }),
	}
	command.Flags().BoolVar(&keepLogs, "keep-logs", false, "keep the log files")
	return command
}

func statusCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what runs; exit code 3 when the cluster is down",
		Args:  cobra.NoArgs,
		RunE: run(func(ctx context.Context, c *Cluster, _ []string) error {
			return c.printStatus(ctx, os.Stdout, asJSON)
		}),
	}
	command.Flags().BoolVar(&asJSON, "json", false, "for programs")
	return command
}

const componentHelp = `
COMPONENT is etcd, apiserver, controller-manager, scheduler, registry or
forwarder of the control plane, or kubelet, containerd or kube-proxy of a node.
@NODE may be left out when there is one node.`

func killCommand() *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:   "kill COMPONENT[@NODE]",
		Short: "Send a signal to a component; when it ends it is started again",
		Long:  "Send a signal to a component; when it ends it is started again.\n" + componentHelp,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(_ context.Context, c *Cluster, args []string) error {
			return c.Kill(args[0], name)
		}),
	}
	command.Flags().StringVar(&name, "signal", "KILL", "signal to send")
	return command
}

func stopCommand() *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:   "stop COMPONENT[@NODE]",
		Short: "End a component and keep it away until it is started",
		Long:  "End a component and keep it away until it is started.\n" + componentHelp,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(_ context.Context, c *Cluster, args []string) error {
			return c.Stop(args[0], name)
		}),
	}
	command.Flags().StringVar(&name, "signal", "KILL", "signal that ends it, KILL or TERM")
	return command
}

func startCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "start COMPONENT[@NODE]",
		Short: "Bring a stopped component back",
		Long:  "Bring a stopped component back.\n" + componentHelp,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(_ context.Context, c *Cluster, args []string) error {
			return c.Start(args[0])
		}),
	}
}

func haltCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "halt NODE",
		Short: "Crash a node: end all of its processes at once",
		Args:  cobra.ExactArgs(1),
		RunE:  run(func(ctx context.Context, c *Cluster, args []string) error { return c.Halt(ctx, args[0]) }),
	}
}

func bootCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "boot NODE",
		Short: "Start a halted node again, with the disk that it had",
		Args:  cobra.ExactArgs(1),
		RunE:  run(func(ctx context.Context, c *Cluster, args []string) error { return c.Boot(ctx, args[0]) }),
	}
}

func rebootCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reboot NODE",
		Short: "Halt a node and boot it",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(ctx context.Context, c *Cluster, args []string) error {
			if err := c.Halt(ctx, args[0]); err != nil {
				return err
			}
			return c.Boot(ctx, args[0])
		}),
	}
}

func execCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "exec NODE|control-plane -- COMMAND [ARG...]",
		Short: "Run a command in all namespaces of a box",
		Args:  cobra.MinimumNArgs(2),
		RunE: run(func(_ context.Context, c *Cluster, args []string) error {
			words := args[1:]
			if words[0] == "--" {
				words = words[1:]
			}
			if len(words) == 0 {
				return errors.New("no command to run")
			}
			return c.Exec(args[0], words)
		}),
	}
	command.Flags().SetInterspersed(false) // flags of COMMAND are not ours
	return command
}

func pushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "push ARCHIVE.tar NAME:TAG",
		Short: "Store an image (an OCI image layout in a tar archive) for the nodes to pull",
		Args:  cobra.ExactArgs(2),
		RunE: run(func(ctx context.Context, c *Cluster, args []string) error {
			digest, err := c.Push(ctx, args[0], args[1])
			if err == nil {
				fmt.Println(digest)
			}
			return err
		}),
	}
}

// The hidden commands run inside a box.

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use: box.InitCommand + " NAME", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error { return box.Init() },
	}
}

func superviseCommand() *cobra.Command {
	return &cobra.Command{
		Use: box.SuperviseCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return box.Supervise() },
	}
}

func forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use: box.ForwardCommand + " ADDRESS", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return box.Forward(args[0]) },
	}
}
