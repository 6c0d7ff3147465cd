package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"pitstop.dev/tests/pitstop-cluster/lab/release"

	// The upstream commands import these for their side effects: JSON logs, and
	// metrics of the client library and of the version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func runEtcd() { etcdmain.Main(os.Args) }

func runAPIServer()         { runCobra(apiserver.NewAPIServerCommand()) }
func runControllerManager() { runCobra(controllermanager.NewControllerManagerCommand()) }
func runScheduler()         { runCobra(scheduler.NewSchedulerCommand()) }
func runProxy()             { runCobra(proxy.NewProxyCommand()) }

// runKubelet passes a plain context: the command installs the signal context
// itself, and installing it twice panics.
func runKubelet() {
	// Unlike the control plane's components, the kubelet has no flag for the
	// emulated version.
	if older := release.Of(release.Built).Emulated; older != "" {
		if err := features.DefaultMutableFeatureGate.SetEmulationVersion(version.MustParse(older)); err != nil {
			fmt.Fprintln(os.Stderr, "kubelet:", err)
			os.Exit(1)
		}
	}
	runCobra(kubelet.NewKubeletCommand(context.Background()))
}

func runCobra(command *cobra.Command) { os.Exit(cli.Run(command)) }
