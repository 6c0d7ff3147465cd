// Package image makes, stores and hands out container images.
package image

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is an image registry that keeps its images after a restart. The
// library's registry keeps blobs in files but manifests only in memory. So
// Registry writes each accepted manifest to a file, and puts it again at the
// next start.
type Registry struct {
	inner     http.Handler
	manifests string
}

// NewRegistry opens the registry in a directory.
func NewRegistry(dir string) (*Registry, error) {
	blobs, manifests := filepath.Join(dir, "blobs"), filepath.Join(dir, "manifests")
	for _, path := range []string{blobs, manifests} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
	}
	inner := registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)),
		registry.Logger(log.New(io.Discard, "", 0)),
	)
	r := &Registry{inner: inner, manifests: manifests}
	return r, r.replay()
}

// ServeHTTP serves the registry's protocol.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPut || !strings.Contains(request.URL.Path, "/manifests/") {
		r.inner.ServeHTTP(w, request)
		return
	}
	body, err := io.ReadAll(io.LimitReader(request.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status := r.put(w, request.URL.Path, request.Header.Get("Content-Type"), body)
	if status/100 != 2 {
		log.Printf("manifest %s refused: %d", request.URL.Path, status)
		return
	}
	if err := r.remember(request.URL.Path, request.Header.Get("Content-Type"), body); err != nil {
		log.Printf("manifest %s is only in memory: %v", request.URL.Path, err)
	}
}

func (r *Registry) put(w http.ResponseWriter, path, mediaType string, body []byte) int {
	request := httptest.NewRequest(http.MethodPut, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", mediaType)
	recorder := httptest.NewRecorder()
	r.inner.ServeHTTP(recorder, request)
	if w != nil {
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
	}
	return recorder.Code
}

// remember writes a manifest to a file named by its path: the media type in
// the first line, then the manifest.
func (r *Registry) remember(path, mediaType string, body []byte) error {
	file := filepath.Join(r.manifests, base64.RawURLEncoding.EncodeToString([]byte(path)))
	temporary := file + ".new"
	if err := os.WriteFile(temporary, append([]byte(mediaType+"\n"), body...), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

// replay puts all remembered manifests again. An index needs its manifests
// first, but the files have no such order. So replay retries refused manifests
// as long as any other succeeds.
func (r *Registry) replay() error {
	entries, err := os.ReadDir(r.manifests)
	if err != nil {
		return err
	}
	left := map[string]string{}
	for _, entry := range entries {
		if path, err := base64.RawURLEncoding.DecodeString(entry.Name()); err == nil {
			left[string(path)] = filepath.Join(r.manifests, entry.Name())
		}
	}
	for progress := true; progress; {
		progress = false
		for path, file := range left {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			mediaType, body, ok := bytes.Cut(content, []byte("\n"))
			if !ok {
				return fmt.Errorf("%s is not a remembered manifest", file)
			}
			if r.put(nil, path, string(mediaType), body)/100 == 2 {
				delete(left, path)
				progress = true
			}
		}
	}
	for path := range left {
		log.Printf("manifest %s could not be restored", path)
	}
	return nil
}
