package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/image"
)

// runRegistry serves an image registry: `registry ADDRESS DIRECTORY`.
func runRegistry() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: registry ADDRESS DIRECTORY")
		os.Exit(2)
	}
	handler, err := image.NewRegistry(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: os.Args[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
