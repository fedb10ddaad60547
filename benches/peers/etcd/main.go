// Puts and linearizable reads of etcd, with a number of calls on the way.
//
//	etcd_bench ENDPOINT,ENDPOINT... OPERATION SIZE KEYS OUTSTANDING CONNECTIONS SECONDS
//
// OPERATION is put or get. All calls go to the leader, as with the flag --target-leader of etcd's own
// benchmark: any other member would pass them on. The calls are spread over the connections. A tenth
// of the time before the run does not count, and sets all keys. Prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// How long a call may take until the measurement is given up.
const callMax = 20 * time.Second

type figures struct {
	Calls          int     `json:"calls"`
	Seconds        float64 `json:"seconds"`
	CallsPerSecond float64 `json:"calls_per_second"`
	P50            int64   `json:"p50_ns"`
	P90            int64   `json:"p90_ns"`
	P99            int64   `json:"p99_ns"`
	P999           int64   `json:"p999_ns"`
	Max            int64   `json:"max_ns"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 8 {
		return fmt.Errorf("usage: etcd_bench ENDPOINTS OPERATION SIZE KEYS OUTSTANDING CONNECTIONS SECONDS")
	}
	operation := os.Args[2]
	var numbers [4]int
	for i := range numbers {
		number, err := strconv.Atoi(os.Args[3+i])
		if err != nil || number < 1 {
			return fmt.Errorf("%q is no positive number", os.Args[3+i])
		}
		numbers[i] = number
	}
	seconds, err := strconv.ParseFloat(os.Args[7], 64)
	if err != nil || seconds <= 0 {
		return fmt.Errorf("%q is no time in seconds", os.Args[7])
	}
	size, keys, outstanding, connections := numbers[0], numbers[1], numbers[2], numbers[3]
	leader, err := findLeader(strings.Split(os.Args[1], ","))
	if err != nil {
		return err
	}
	clients := make([]*clientv3.Client, connections)
	for i := range clients {
		clients[i], err = connect(leader)
		if err != nil {
			return err
		}
		defer clients[i].Close()
	}
	value := strings.Repeat("x", size)
	put := func(client *clientv3.Client, number int64) error {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		defer cancel()
		_, err := client.Put(ctx, key(number%int64(keys)), value)
		return err
	}
	get := func(client *clientv3.Client, number int64) error {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		defer cancel()
		// A read is linearizable unless it is asked to be serializable.
		reply, err := client.Get(ctx, key(number%int64(keys)))
		if err == nil && (len(reply.Kvs) != 1 || len(reply.Kvs[0].Value) != size) {
			err = fmt.Errorf("a read found %d values", len(reply.Kvs))
		}
		return err
	}
	if err := fill(clients, keys, put); err != nil {
		return err
	}
	call := put
	if operation == "get" {
		call = get
	} else if operation != "put" {
		return fmt.Errorf("the operation %q is neither put nor get", operation)
	}
	length := time.Duration(seconds * float64(time.Second))
	if _, err := measure(clients, outstanding, length/10, call); err != nil {
		return err
	}
	found, err := measure(clients, outstanding, length, call)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func key(number int64) string {
	return fmt.Sprintf("key-%08d", number)
}

func connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: callMax})
}

func findLeader(endpoints []string) (string, error) {
	for _, endpoint := range endpoints {
		client, err := connect(endpoint)
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		status, err := client.Status(ctx, endpoint)
		cancel()
		client.Close()
		if err != nil {
			return "", err
		}
		if status.Header.MemberId == status.Leader {
			return endpoint, nil
		}
	}
	return "", fmt.Errorf("no member of %v leads", endpoints)
}

// Sets all keys once, so that each read finds a value.
func fill(clients []*clientv3.Client, keys int, put func(*clientv3.Client, int64) error) error {
	var group sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, 64)
	for i := range 64 {
		group.Go(func() {
			for number := next.Add(1) - 1; number < int64(keys); number = next.Add(1) - 1 {
				if err := put(clients[i%len(clients)], number); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}

func measure(clients []*clientv3.Client, outstanding int, length time.Duration, call func(*clientv3.Client, int64) error) (*figures, error) {
	var group sync.WaitGroup
	var next atomic.Int64
	times := make([][]int64, outstanding)
	errs := make(chan error, outstanding)
	begin := time.Now()
	for i := range outstanding {
		group.Go(func() {
			for called := begin; called.Sub(begin) < length; {
				if err := call(clients[i%len(clients)], next.Add(1)); err != nil {
					errs <- err
					return
				}
				now := time.Now()
				times[i] = append(times[i], now.Sub(called).Nanoseconds())
				called = now
			}
		})
	}
	group.Wait()
	seconds := time.Since(begin).Seconds()
	close(errs)
	if err := <-errs; err != nil {
		return nil, err
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	at := func(part float64) int64 { return all[int(float64(len(all)-1)*part)] }
	return &figures{len(all), seconds, float64(len(all)) / seconds, at(0.5), at(0.9), at(0.99), at(0.999), at(1)}, nil
}
