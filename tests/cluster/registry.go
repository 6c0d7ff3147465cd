package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"pitstop.dev/tests/pitstop-cluster/lab/image"
)

// runRegistry serves an image registry at two addresses, the second one with a
// password: `registry ADDRESS PRIVATE-ADDRESS DIRECTORY`.
func runRegistry() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: registry ADDRESS PRIVATE-ADDRESS DIRECTORY")
		os.Exit(2)
	}
	registry, err := image.NewRegistry(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	open, private, err := image.Doors(registry, os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	serve := func(address string, handler http.Handler) {
		server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		log.Fatal(server.ListenAndServe())
	}
	go serve(os.Args[2], private)
	serve(os.Args[1], open)
}
