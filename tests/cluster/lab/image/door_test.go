package image

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// lab is a registry with both doors and one image.
type lab struct {
	t             *testing.T
	dir           string
	open, private string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	registry, err := NewRegistry(dir)
	if err != nil {
		t.Fatal(err)
	}
	open, private, err := Doors(registry, dir)
	if err != nil {
		t.Fatal(err)
	}
	host := func(handler http.Handler) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	l := &lab{t, dir, host(open), host(private)}
	store := Store{Address: l.open, Transport: http.DefaultTransport}
	if err := store.Push(context.Background(), sample(t), "pitstop.dev/some/tool:2"); err != nil {
		t.Fatal(err)
	}
	return l
}

// pull fetches the whole image through one of the doors.
func (l *lab) pull(host string, auth authn.Authenticator) error {
	reference, err := name.ParseReference(host+"/some/tool:2", name.Insecure)
	if err != nil {
		return err
	}
	// Retries would hide the registry's answer.
	image, err := remote.Image(reference, remote.WithAuth(auth), remote.WithRetryStatusCodes())
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) faults(faults Faults) {
	content, err := json.Marshal(faults)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, faultsFile), content, 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) requests() []string {
	content, err := os.ReadFile(filepath.Join(l.dir, requestsFile))
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func TestThePrivateDoorAsksForThePassword(t *testing.T) {
	l := newLab(t)
	content, err := os.ReadFile(filepath.Join(l.dir, credentialsFile))
	if err != nil {
		t.Fatal(err)
	}
	var good Credentials
	if err := json.Unmarshal(content, &good); err != nil {
		t.Fatal(err)
	}
	if len(good.Password) < 20 {
		t.Errorf("password %q", good.Password)
	}
	for _, c := range []struct {
		auth authn.Authenticator
		ok   bool
	}{
		{authn.Anonymous, false},
		{&authn.Basic{Username: good.Username, Password: "x"}, false},
		{&authn.Basic{Username: good.Username, Password: good.Password}, true},
	} {
		err := l.pull(l.private, c.auth)
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "UNAUTHORIZED") {
			t.Errorf("%v: %v", c.auth, err)
		}
		if err := l.pull(l.open, authn.Anonymous); err != nil {
			t.Error(err)
		}
	}
	again, err := loadCredentials(filepath.Join(l.dir, credentialsFile))
	if err != nil || *again != good {
		t.Errorf("another password after a restart: %v, %v", again, err)
	}
}

func TestFaultsComeAndGo(t *testing.T) {
	l := newLab(t)
	for _, status := range []int{401, 403, 404, 429, 500, 503} {
		l.faults(Faults{Status: status})
		if err := l.pull(l.open, authn.Anonymous); err == nil {
			t.Errorf("%d: pulled", status)
		}
		l.faults(Faults{Status: status, Repository: "other/"})
		if err := l.pull(l.open, authn.Anonymous); err != nil {
			t.Errorf("another repository: %v", err)
		}
	}
	// Faults do not apply to pushes.
	l.faults(Faults{Status: 503, Repository: "new/"})
	store := Store{Address: l.open, Transport: http.DefaultTransport}
	if err := store.Push(context.Background(), sample(t), "pitstop.dev/some/tool:3"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(l.dir, faultsFile)); err != nil {
		t.Fatal(err)
	}
	if err := l.pull(l.open, authn.Anonymous); err != nil {
		t.Error(err)
	}
}

func TestBlobsAreSlow(t *testing.T) {
	l := newLab(t)
	took := func() time.Duration {
		start := time.Now()
		if err := l.pull(l.open, authn.Anonymous); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	l.faults(Faults{DelayMilliseconds: 300})
	if d := took(); d < 300*time.Millisecond {
		t.Errorf("delayed: %s", d)
	}
	recorder := httptest.NewRecorder()
	start := time.Now()
	written, err := (&throttle{recorder, 2000}).Write(make([]byte, 1000))
	if d := time.Since(start); err != nil || written != 1000 || recorder.Body.Len() != 1000 || d < 400*time.Millisecond {
		t.Errorf("%d bytes, %v, in %s", written, err, d)
	}
}

func TestRequestsOfThoseWhoPullAreWrittenDown(t *testing.T) {
	l := newLab(t)
	pushed := len(l.requests())
	if err := l.pull(l.open, authn.Anonymous); err != nil {
		t.Fatal(err)
	}
	if err := l.pull(l.private, authn.Anonymous); err == nil {
		t.Fatal("pulled without a password")
	}
	seen := l.requests()[pushed:]
	for _, want := range []string{"open GET some/tool manifests/2", "private GET some/tool manifests/2"} {
		if !slices.Contains(seen, want) {
			t.Errorf("%q is not among %q", want, seen)
		}
	}
}

func TestVersionsDifferWhereTheyShould(t *testing.T) {
	images, err := Versions(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for name, image := range images {
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[digest.String()]; ok && versions[other].name != versions[name].name {
			t.Errorf("%s is %s", name, other)
		}
		seen[digest.String()] = name
	}
	if len(seen) != len(images)-1 {
		t.Errorf("%d digests of %d images", len(seen), len(images))
	}
}
