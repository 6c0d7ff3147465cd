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

// putParallel is how many writes are under way.
const putParallel = 64

// runPut stores what it reads in the etcd of the box that it runs in: lines of
// a key, a tab and a value. The API server's decoder of stored objects knows
// JSON, whatever format it writes itself.
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
	// Not many in a transaction: the API server takes a revision of etcd for
	// one change.
	writes, ctx := errgroup.WithContext(context.Background())
	writes.SetLimit(putParallel)
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, 2<<20) // more than etcd takes
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
