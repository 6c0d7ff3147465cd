package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// putParallel is the maximum number of concurrent writes.
const putParallel = 64

// runPut reads lines of key, tab and value from standard input, and stores them
// in the etcd of its own box. Values may be JSON: the API server decodes it,
// whatever format it writes itself.
func runPut() {
	if err := put(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "put:", err)
		os.Exit(1)
	}
}

func put(lines io.Reader) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:2379"}})
	if err != nil {
		return err
	}
	defer client.Close()
	// No transactions of many keys: the API server takes an etcd revision for
	// one change.
	writes, ctx := errgroup.WithContext(context.Background())
	writes.SetLimit(putParallel)
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, 2<<20) // bytes; more than etcd accepts
	for scanner.Scan() && ctx.Err() == nil {
		key, value, found := strings.Cut(scanner.Text(), "\t")
		if !found {
			return fmt.Errorf("a line without a tab: %.80q", scanner.Text())
		}
		writes.Go(func() error {
			_, err := client.Put(ctx, key, value)
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	return scanner.Err()
}
