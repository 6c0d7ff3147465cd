package image

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Files in the registry's directory that tests and the registry share.
const (
	// faultsFile is written by tests: the current faults (see Faults).
	faultsFile = "faults.json"
	// credentialsFile is written by the registry: the private door's
	// credentials.
	credentialsFile = "credentials.json"
	// requestsFile is written by the registry: a line for each request that
	// pulls.
	requestsFile = "requests.log"
)

// Faults says how the registry fails pulls. The registry reads the file at each
// request; without it nothing fails.
type Faults struct {
	// Repository is a prefix: only repositories with such names fail.
	Repository string `json:"repository"`
	// Status is the HTTP status of every answer; 0 for no fault.
	Status int `json:"status"`
	// DelayMilliseconds is the time until the first byte of a blob.
	DelayMilliseconds int `json:"delayMilliseconds"`
	// BytesPerSecond limits each blob; 0 for no limit.
	BytesPerSecond int `json:"bytesPerSecond"`
}

// Credentials open the private door.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Doors returns two handlers of one registry. open needs no password; private
// does.
func Doors(registry http.Handler, dir string) (open, private http.Handler, err error) {
	credentials, err := loadCredentials(filepath.Join(dir, credentialsFile))
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, requestsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	door := func(name string, credentials *Credentials) http.Handler {
		return &door{name, registry, credentials, log, filepath.Join(dir, faultsFile)}
	}
	return door("open", nil), door("private", credentials), nil
}

// loadCredentials chooses a password once. It is unique, so a test that finds
// it elsewhere knows that it has leaked.
func loadCredentials(path string) (*Credentials, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		chosen := &Credentials{Username: "lab", Password: rand.Text()}
		if content, err = json.Marshal(chosen); err != nil {
			return nil, err
		}
		return chosen, os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return nil, err
	}
	credentials := &Credentials{}
	return credentials, json.Unmarshal(content, credentials)
}

type door struct {
	name        string
	registry    http.Handler
	credentials *Credentials // nil: no password
	log         *os.File
	faults      string
}

// object matches the path of a manifest, blob or tag list.
var object = regexp.MustCompile(`^/v2/(.+)/((?:manifests|blobs|tags)/.*)$`)

// ServeHTTP passes a request on, or fails it according to the current faults.
func (d *door) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	pulls := request.Method == http.MethodGet || request.Method == http.MethodHead
	parts := object.FindStringSubmatch(request.URL.Path)
	faults := Faults{}
	if pulls && parts != nil {
		// One write, so that lines of concurrent requests stay whole.
		fmt.Fprintf(d.log, "%s %s %s %s\n", d.name, request.Method, parts[1], parts[2])
		var err error
		if faults, err = d.current(parts[1]); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	switch {
	case faults.Status != 0:
		refuse(w, faults.Status, "the lab's registry was told to fail")
		return
	case !d.admits(request):
		refuse(w, http.StatusUnauthorized, "authentication required")
		return
	}
	if parts != nil && strings.HasPrefix(parts[2], "blobs/") && request.Method == http.MethodGet {
		select {
		case <-time.After(time.Duration(faults.DelayMilliseconds) * time.Millisecond):
		case <-request.Context().Done():
			return
		}
		if faults.BytesPerSecond > 0 {
			w = &throttle{w, faults.BytesPerSecond}
		}
	}
	d.registry.ServeHTTP(w, request)
}

// current returns the faults of a repository.
func (d *door) current(repository string) (Faults, error) {
	content, err := os.ReadFile(d.faults)
	if errors.Is(err, fs.ErrNotExist) {
		return Faults{}, nil
	}
	if err != nil {
		return Faults{}, err
	}
	faults := Faults{}
	if err := json.Unmarshal(content, &faults); err != nil {
		return Faults{}, fmt.Errorf("%s: %w", d.faults, err)
	}
	if !strings.HasPrefix(repository, faults.Repository) {
		return Faults{}, nil
	}
	return faults, nil
}

func (d *door) admits(request *http.Request) bool {
	if d.credentials == nil {
		return true
	}
	username, password, _ := request.BasicAuth()
	return Credentials{username, password} == *d.credentials
}

// refuse answers as registries do: an error object (OCI distribution
// specification, error codes), and with 401 the authentication scheme.
func refuse(w http.ResponseWriter, status int, message string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="pitstop lab"`)
	}
	codes := map[int]string{
		http.StatusUnauthorized: "UNAUTHORIZED", http.StatusForbidden: "DENIED",
		http.StatusNotFound: "MANIFEST_UNKNOWN", http.StatusTooManyRequests: "TOOMANYREQUESTS",
	}
	code := codes[status]
	if code == "" {
		code = "UNAVAILABLE"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}

// throttle passes bytesPerSecond bytes a second.
type throttle struct {
	http.ResponseWriter
	bytesPerSecond int
}

func (t *throttle) Write(content []byte) (written int, err error) {
	const ticks = 20 // a second
	step := max(t.bytesPerSecond/ticks, 1)
	for len(content) > 0 && err == nil {
		var n int
		n, err = t.ResponseWriter.Write(content[:min(step, len(content))])
		written, content = written+n, content[n:]
		time.Sleep(time.Second / ticks)
	}
	return written, err
}
