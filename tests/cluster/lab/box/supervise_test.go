package box

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// supervised starts a supervisor of one program; the test process reaps like
// process 1 of a box would.
func supervised(t *testing.T, component Component) *supervisor {
	t.Helper()
	s := newSupervisor(Spec{Name: "test", Logs: t.TempDir(), Components: []Component{component}})
	go s.reap()
	s.startAll()
	t.Cleanup(func() { _ = s.stop(component.Name, syscall.SIGKILL) })
	return s
}

func until(t *testing.T, s *supervisor, what string, holds func(Status) bool) Status {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if status := s.status()[0]; holds(status) {
			return status
		}
	}
	t.Fatalf("%s: %+v", what, s.status())
	return Status{}
}

func sleeper(t *testing.T) Component {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	return Component{Name: "sleeper", Path: path, Args: []string{"sleep", "600"}}
}

func TestSupervisor(t *testing.T) {
	s := supervised(t, sleeper(t))
	first := until(t, s, "runs", func(c Status) bool { return c.State == Running })

	if err := s.signal("sleeper", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := until(t, s, "killed and started again", func(c Status) bool { return c.State == Running && c.PID != first.PID })
	if second.Restarts != 1 {
		t.Errorf("restarts %d", second.Restarts)
	}

	if err := s.stop("sleeper", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := s.status()[0]; status.State != Stopped || status.PID != 0 {
		t.Errorf("after stop: %+v", status)
	}
	time.Sleep(3 * firstPause)
	if status := s.status()[0]; status.State != Stopped {
		t.Errorf("stopped, but then %+v", status)
	}
	if err := s.signal("sleeper", syscall.SIGKILL); err == nil {
		t.Error("a signal to what does not run must be an error")
	}

	if err := s.resume("sleeper"); err != nil {
		t.Fatal(err)
	}
	until(t, s, "resumed", func(c Status) bool { return c.State == Running })
	if err := s.stop("nothing", syscall.SIGTERM); err == nil {
		t.Error("an unknown component must be an error")
	}
}

func TestAComponentThatCannotStartIsTriedAgain(t *testing.T) {
	s := supervised(t, Component{Name: "broken", Path: "/no/such/program", Args: []string{"broken"}})
	until(t, s, "tried again", func(c Status) bool { return c.Restarts >= 2 && c.State == Backoff })
}

func TestGate(t *testing.T) {
	ready := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ready:
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.crt")
	text := "-----BEGIN CERTIFICATE-----\n" + pemBody(server.Certificate().Raw) + "-----END CERTIFICATE-----\n"
	if err := os.WriteFile(authority, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gate := &Gate{URL: server.URL, CAFile: authority, Patience: 200 * time.Millisecond}
	if err := gate.wait(); err == nil {
		t.Error("a gate whose patience ended must say so")
	}
	gate.Patience = 10 * time.Second
	time.AfterFunc(100*time.Millisecond, func() { close(ready) })
	if err := gate.wait(); err != nil {
		t.Error(err)
	}
}

func TestForwardPassesBothDirectionsAndTheirEnds(t *testing.T) {
	inside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	go func() {
		conn, err := inside.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var question strings.Builder
		buffer := make([]byte, 64)
		for {
			n, err := conn.Read(buffer)
			question.Write(buffer[:n])
			if err != nil { // the end of the question was passed on
				break
			}
		}
		fmt.Fprintf(conn, "answer to %s", question.String())
	}()
	outside, client := pair(t)
	go forward(outside, inside.Addr().String())
	fmt.Fprint(client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(client); got != "answer to question" {
		t.Errorf("got %q", got)
	}
}

func TestForwardResetsWhenNobodyIsThere(t *testing.T) {
	inside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := inside.Addr().String()
	inside.Close()
	outside, client := pair(t)
	go forward(outside, address)
	if _, err := client.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v", err)
	}
}
