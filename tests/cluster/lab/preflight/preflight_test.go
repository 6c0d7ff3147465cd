package preflight

import (
	"strings"
	"testing"
)

func TestEveryMissingToolIsNamedWithOneCommand(t *testing.T) {
	tools := append(tools, debianRuntime()...)
	problems := checkTools(func(string) string { return "" }, tools)
	if len(problems) != len(tools) {
		t.Fatalf("%d problems for %d tools", len(problems), len(tools))
	}
	text := (&Error{problems}).Error()
	for _, tool := range tools {
		if !strings.Contains(text, tool.path) {
			t.Errorf("%s is not named in:\n%s", tool.path, text)
		}
	}
	last := text[strings.LastIndex(text, "\n")+1:]
	want := "cure: apt-get install -y busybox-static conntrack containerd containernetworking-plugins iptables mount nftables runc socat util-linux"
	if last != want {
		t.Errorf("last line\n%s\nwant\n%s", last, want)
	}
}

func TestOnlyWhatIsMissingIsNamed(t *testing.T) {
	problems := checkTools(func(name string) string {
		if name == "runc" {
			return ""
		}
		return "/usr/bin/" + name
	}, append(tools, debianRuntime()...))
	text := (&Error{problems}).Error()
	if len(problems) != 1 || !strings.HasSuffix(text, "apt-get install -y runc") || strings.Contains(text, "containerd") {
		t.Errorf("%v:\n%s", problems, text)
	}
}

func TestProgramsThatAreNotBuiltAreNamedWithTheirCure(t *testing.T) {
	problems := checkBuilt(func(path string) string {
		if path == "/bin/containerd-2/ctr" {
			return path
		}
		return ""
	}, "containerd-2", "/bin/containerd-2")
	text := (&Error{problems}).Error()
	want := "  - the program /bin/containerd-2/containerd is missing: build it with: cargo xtask cluster up --runtime containerd-2"
	if len(problems) != 2 || !strings.Contains(text, want) || strings.Contains(text, "apt-get") {
		t.Errorf("%v:\n%s", problems, text)
	}
}

func TestProblemsWithoutAPackageCarryTheirCure(t *testing.T) {
	text := (&Error{[]Problem{{What: "this user is not root", Cure: "run it with sudo"}}}).Error()
	if !strings.Contains(text, "not root: run it with sudo") || strings.Contains(text, "apt-get") {
		t.Error(text)
	}
}

func TestStatic(t *testing.T) {
	if static("/etc/passwd") || static("/no/such/file") {
		t.Error("what is no program is not static")
	}
}
