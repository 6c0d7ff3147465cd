package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// etcd takes 128 operations and 1.5 MiB in a transaction.
	putOperations = 100
	putBytes      = 1 << 20
	// putParallel is how many transactions are under way.
	putParallel = 4
)

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
	transactions, ctx := errgroup.WithContext(context.Background())
	transactions.SetLimit(putParallel)
	var (
		operations []clientv3.Op
		size       int
	)
	commit := func() {
		batch := operations
		operations, size = nil, 0
		transactions.Go(func() error {
			_, err := client.Txn(ctx).Then(batch...).Commit()
			return err
		})
	}
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, putBytes)
	for scanner.Scan() && ctx.Err() == nil {
		key, value, found := bytes.Cut(scanner.Bytes(), []byte{'\t'})
		if !found {
			return fmt.Errorf("a line without a tab: %.80q", scanner.Bytes())
		}
		if len(operations) == putOperations || size+len(value) > putBytes {
			commit()
		}
		operations = append(operations, clientv3.OpPut(string(key), string(value)))
		size += len(value)
	}
	commit()
	if err := transactions.Wait(); err != nil {
		return err
	}
	return scanner.Err()
}
